#!/usr/bin/env -S python3 -B
"""gcc and g++ compile, optimise and link files of some size: the compilers' output must be equal, byte for byte."""

import random

from program_test import ProgramTest, same

CXX = """
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Node {
    std::map<std::string, std::variant<int, std::string, std::unique_ptr<Node<N - 1>>>> fields;
    std::unordered_map<int, std::vector<std::string>> index;
    uint64_t build(unsigned seed) {
        for (int i = 0; i < 12; i++) {
            seed = seed * 1103515245 + 12345;
            std::string key = "key" + std::to_string(seed % 50 + N);
            index[seed % 97].push_back(std::string(seed % 40, 'x') + key);
            if (i % 3 == 0) fields[key] = std::make_unique<Node<N - 1>>();
            else if (i % 3 == 1) fields[key] = int(seed >> 8);
            else fields[key] = key + key;
        }
        uint64_t sum = seed;
        for (auto &[key, value] : fields) {
            if (auto *child = std::get_if<2>(&value)) sum = sum * 31 + (*child)->build(seed + key.size());
            else if (auto *number = std::get_if<0>(&value)) sum += *number;
            else sum += std::hash<std::string>()(std::get<1>(value)) % 1000;
        }
        for (auto &[number, words] : index) {
            std::sort(words.begin(), words.end());
            sum += words.front().size() * number;
        }
        return sum;
    }
};
template <> struct Node<0> { uint64_t build(unsigned seed) { return seed; } };

int main() {
    std::vector<uint64_t> sums(200);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < sums.size(); i++) threads.emplace_back([&sums, i] { sums[i] = Node<7>().build(i); });
    for (auto &thread : threads) thread.join();
    std::ostringstream text;
    for (auto sum : sums) text << "sum=" << sum << ";";
    std::cout << text.str() << std::accumulate(sums.begin(), sums.end(), uint64_t(0)) << "\\n";
}
"""


def c_source(functions):
    """A file of functions with loops, switches and structs; main prints what they compute."""
    choose = random.Random(1)
    parts = ["#include <stdio.h>\n#include <string.h>\nstruct pair { unsigned a, b; double d[4]; };\n"]
    for i in range(functions):
        cases = "\n".join(
            f"        case {n}: p->a += x * {choose.randrange(1, 999)}u; p->d[{n % 4}] += p->b / {n + 1.5}; break;"
            for n in range(choose.randrange(4, 12)))
        called = f"f{choose.randrange(i)}(&q, x >> 1)" if i and i % 3 else "x ^ p->b"
        parts.append(f"""
static unsigned f{i}(struct pair *p, unsigned x)
{{
    struct pair q = *p;
    char text[64];
    for (unsigned i = 0; i < x % {choose.randrange(3, 9)}; i++) {{
        switch ((x + i) % 13) {{
{cases}
        default: p->b ^= p->a << {choose.randrange(1, 9)}; break;
        }}
        snprintf(text, sizeof text, "{choose.randrange(10**9)} %u", i);
        p->a += strlen(text);
    }}
    return p->a + ({called});
}}
""")
    parts.append("int main(void)\n{\n    struct pair p = {1, 2, {0}};\n    unsigned sum = 0;\n")
    parts += [f"    sum = sum * 31 + f{i}(&p, {i}u);\n" for i in range(functions)]
    parts.append('    printf("%u %u %u\\n", sum, p.a, p.b);\n    return 0;\n}\n')
    return "".join(parts)


with ProgramTest("gcc", "g++") as test:
    (test.dir / "file.c").write_text(c_source(functions=200))
    (test.dir / "file.cc").write_text(CXX)
    for hakmem, out in (False, "plain"), (True, "hakmem"):
        (test.dir / out).mkdir()
        # -pipe: compiler and assembler run at the same time.
        test.run(["gcc", "-pipe", "-O2", "-g", "-c", "file.c", "-o", f"{out}/c.o"], hakmem,
                 loaded=["*gcc*", "cc1", "*-as"])
        test.run(["g++", "-std=c++17", "-O2", "-g", "-c", "file.cc", "-o", f"{out}/cc.o"], hakmem, loaded=["cc1plus"])
        test.run(["gcc", "-flto=2", "-O1", "file.c", "-o", f"{out}/c"], hakmem, loaded=["lto1"])
        test.run(["g++", f"{out}/cc.o", "-pthread", "-o", f"{out}/cc"], hakmem)
    for name in "c.o", "cc.o", "c", "cc":
        same(name, test.dir / "plain" / name, test.dir / "hakmem" / name)
    test.both(["hakmem/c"], loaded=[])
    test.both(["hakmem/cc"], loaded=["cc"])
