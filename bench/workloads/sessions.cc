/*
 * Sessions: objects made of C++ containers that come, change and go.
 *
 * Stands for C++ services: a hash map of objects, each with strings, vectors and a small hash map of its own. They take
 * their memory by operator new and give it back by the sized operator delete, in many sizes, with moves and copies in
 * between as usual.
 *
 * Each step draws a session. One that is not there is made; one that is there is used, which lengthens its history and
 * changes an attribute, or, one time in three, ends.
 *
 * Figure: microseconds per step. Check: a session's name and history, whenever it is used or ends.
 *
 *     sessions IDS STEPS
 */
#include "arguments.h"
#include "sizes.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace
{

struct Session {
    std::string name;
    std::vector<std::string> roles;
    std::unordered_map<std::string, std::string> attributes;
    std::vector<uint64_t> history;
};

constexpr const char *ATTRIBUTES[] = {"language",    "time-zone-of-the-user",   "colour-scheme",
                                      "remote-host", "last-page-that-was-seen", "locale"};
constexpr size_t MOST_ATTRIBUTES = sizeof ATTRIBUTES / sizeof *ATTRIBUTES;

std::string name_of(uint64_t id) { return "user-with-the-number-" + std::to_string(id); }

std::string text(uint64_t *state) { return std::string(size_lognormal(state, 18, 1.0, 1, 200), 't'); }

std::unique_ptr<Session> session_new(uint64_t id, uint64_t *state)
{
    auto session = std::make_unique<Session>();
    session->name = name_of(id);
    for (size_t roles = size_between(state, 0, 3); roles > 0; roles--)
        session->roles.push_back(text(state));
    for (size_t i = size_between(state, 1, MOST_ATTRIBUTES); i > 0; i--)
        session->attributes.emplace(ATTRIBUTES[i - 1], text(state));
    session->history.push_back(id);
    return session;
}

void use(Session &session, uint64_t *state)
{
    session.history.push_back(session.history.back() + 1);
    session.attributes[ATTRIBUTES[size_between(state, 0, MOST_ATTRIBUTES - 1)]] = text(state);
}

void check(const Session &session, uint64_t id)
{
    if (session.name != name_of(id) || session.history.front() != id ||
        session.history.back() != id + session.history.size() - 1)
        fail("session %llu is not what it was", static_cast<unsigned long long>(id));
}

} // namespace

int main(int argc, char **argv)
{
    size_t ids = count_argument(argc, argv, 1, "IDS");
    size_t steps = count_argument(argc, argv, 2, "STEPS");
    uint64_t state = 1;
    double seconds;
    struct stopwatch elapsed;
    {
        std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions;
        stopwatch start = stopwatch_start();
        for (size_t step = 0; step < steps; step++) {
            uint64_t id = size_between(&state, 0, ids - 1);
            auto found = sessions.find(id);
            if (found == sessions.end()) {
                sessions.emplace(id, session_new(id, &state));
                continue;
            }
            check(*found->second, id);
            if (size_between(&state, 0, 2) == 0)
                sessions.erase(found);
            else
                use(*found->second, &state);
        }
        elapsed = stopwatch_read(start);
        seconds = elapsed.cpu;
        for (const auto &[id, session] : sessions)
            check(*session, id);
    }
    report(seconds / static_cast<double>(steps) * 1e6, "us", elapsed, "steps=%zu", steps);
    return 0;
}
