/* A program whose own objects use new and delete alone, and which forks while threads allocate: handlers are there. */
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

static void allocate(int n)
{
    for (int i = 0; i < n; i++)
        delete[] new char[100 + i % 1000];
}

int main()
{
    bool stop = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&stop] {
            while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
                allocate(1000);
        });
    int status = 0;
    for (int i = 0; i < 50 && status == 0; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            allocate(100000);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            status = 1;
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (std::thread &thread : threads)
        thread.join();
    return status != 0;
}
