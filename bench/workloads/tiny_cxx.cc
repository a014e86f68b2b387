/*
 * The least that a program in C++ does: strings, a vector and a map, a line of output. start_up runs it many times.
 *
 * With an argument it prints the file that its malloc comes from, and nothing else.
 *
 *     tiny_cxx [origin]
 */
#include "workload.h"

#include <iostream>
#include <map>
#include <string>
#include <vector>

int main(int argc, char **)
{
    if (argc > 1) {
        std::cout << origin_of("malloc") << '\n';
        return 0;
    }
    std::map<std::string, std::vector<std::string>> words_by_start;
    for (int i = 0; i < 50; i++) {
        std::string word = "a word that is long enough for the heap, number " + std::to_string(i * 37 % 50);
        words_by_start[word.substr(word.size() - 1)].push_back(word);
    }
    std::size_t words = 0;
    for (const auto &[start, list] : words_by_start)
        words += list.size();
    if (words_by_start.size() != 10 || words != 50)
        fail("%zu words under %zu keys", words, words_by_start.size());
    std::cout << words << '\n';
    return 0;
}
