#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""public_headers.py INCLUDE

Each header of INCLUDE/pollux can be used by itself, in any order with the others, and beside
<libaio.h> and <liburing.h>, in C99 and later without extensions and in C++11 and later, without a
warning, with gcc and with clang. And what programs may do with the types does compile.
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
C = ["c99", "c11", "c17", "c2x"]
CXX = ["c++11", "c++14", "c++17", "c++20", "c++2b"]
# The oldest of each language is where most is missing, so the orders are tried there.
COMPILERS = [
    ("gcc", "c", C), ("clang", "c", C), ("musl-gcc", "c", ["c99"]),
    ("g++", "c++", CXX), ("clang++", "c++", CXX),
]
PARTNERS = ["libaio.h", "liburing.h"]

C_USE = """
#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <pollux/file.h>
#include <pollux/posix.h>
#include <pollux/version.h>
#include <linux/aio_abi.h>
#include <pollux/aio.h>
#if POLLUX_VERSION < 0x000200
#error "the version can be compared"
#endif
struct object { int before; struct pollux_file file; };
typedef char is_64_bytes[sizeof(struct pollux_file) == 64 ? 1 : -1];
struct object *of(struct pollux_file *f);
struct object *of(struct pollux_file *f) { return pollux_container_of(f, struct object, file); }
int context(aio_context_t *ctx);
int context(aio_context_t *ctx) { return pollux_io_setup(1, ctx); }
struct pollux_efd *counter(void);
struct pollux_efd *counter(void)
{
	struct pollux_efd *e = NULL;
	return pollux_eventfd(0, 0) < 0 || pollux_efd_new(&e, 0, 0) ? NULL : e;
}
"""

CXX_USE = """
#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <pollux/posix.h>
#include <pollux/version.h>
static_assert(sizeof(pollux_file) == 64 && alignof(pollux_file) == alignof(uint64_t), "as in C");
static_assert(POLLUX_VERSION >= 0x000200, "a constant");
// No name of the engine's gets into a class that is derived from a file.
struct object : pollux_file { int ops, lock, kind, mode, refs, index, flags, word, node, watches; };
int total(object &o);
int total(object &o) { return o.ops + o.lock + o.kind + o.mode + o.refs + o.index + o.flags; }
struct holder { pollux_file file; };
holder *of(pollux_file *f);
holder *of(pollux_file *f) { return pollux_container_of(f, holder, file); }
// With a plain 0, which is no enumerator, some compilers warn.
uint32_t holder_poll(pollux_file *f, uint32_t);
uint32_t holder_poll(pollux_file *f, uint32_t) { return of(f) ? EPOLLIN : 0u; }
// A type and a function that once had one name.
pollux_efd *counter();
pollux_efd *counter() { pollux_efd *e = nullptr; return pollux_eventfd(0, 0) < 0 ? nullptr : e; }
"""


class Tries:
    def __init__(self, include):
        self.include = include
        self.headers = ["pollux/" + n for n in sorted(os.listdir(os.path.join(include, "pollux")))
                        if n.endswith(".h")]
        self.all = []

    def compiles(self, compiler, lang, std, text, more=()):
        """None, or what the compiler says."""
        p = subprocess.run([compiler, "-std=" + std, *WARNINGS, *more, "-I", self.include, "-x", lang, "-"],
                           input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)
        return p.stdout or "it fails" if p.returncode else None

    def add(self, name, compiler, lang, std, text, more=()):
        self.all.append((name, compiler, lang, std, text, more))

    def orders(self, headers):
        """As many orders as there are headers, in which each stands directly behind each other one
        once, and each is first once: what it leaves undone is met by the next that needs it. (The
        first goes 0, n-1, 1, n-2, ...; its steps all differ. Each other one is shifted. For that n
        has to be even.)"""
        row = headers + [None] * (len(headers) % 2)
        n = len(row)
        first = [i // 2 if i % 2 == 0 else n - 1 - i // 2 for i in range(n)]
        for shift in range(n):
            yield [h for h in (row[(i + shift) % n] for i in first) if h]

    def including(self, headers):
        return "".join("#include <%s>\n" % h for h in headers) + "int here;\n"

    def collect(self, compiler, lang, stds):
        # A partner that needs more than the standard, as after any header of libc, is given it.
        needs = {}
        for partner in PARTNERS:
            for more in ([], ["-D_GNU_SOURCE"], None):
                if more is None or not self.compiles(compiler, lang, stds[0],
                                                     self.including(["stdint.h", partner]), more):
                    needs[partner] = more
                    break
        for std in stds:
            for h in self.headers:
                self.add("%s alone" % h, compiler, lang, std, self.including([h]))
            self.add("all in order", compiler, lang, std, self.including(self.headers))
            self.add("all in reverse", compiler, lang, std, self.including(self.headers[::-1]))
            # musl-gcc has no headers of the kernel.
            if compiler != "musl-gcc":
                self.add("the types are used", compiler, lang, std,
                         C_USE if lang == "c" else CXX_USE)
        if compiler == "musl-gcc":
            return
        self.add_orders("all, order %d", self.headers, compiler, lang, stds[0])
        for partner in PARTNERS:
            more = needs[partner]
            if more is None:
                print("# %s does not compile by itself as %s with %s" % (partner, stds[0], compiler))
                continue
            self.add_orders("all with " + partner + ", order %d", self.headers + [partner],
                            compiler, lang, stds[0], more)

    def add_orders(self, name, headers, compiler, lang, std, more=()):
        for i, order in enumerate(self.orders(headers)):
            self.add(name % (i + 1), compiler, lang, std, self.including(order), more)

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda t: (t, self.compiles(*t[1:])), self.all))


def main():
    tries = Tries(sys.argv[1])
    failed = count = 0

    def say(right, name):
        nonlocal failed, count
        count += 1
        failed += not right
        print("%s %d - %s" % ("ok" if right else "not ok", count, name))

    # What it would be blind for.
    bad = tries.compiles("gcc", "c", "c99", "struct a { union { int b; }; };\n")
    say(bad is not None, "an extension is found")
    for compiler, lang, stds in COMPILERS:
        if shutil.which(compiler):
            tries.collect(compiler, lang, stds)
        else:
            print("# %s is not installed" % compiler)
    wrong = {}
    names = []
    for (name, compiler, lang, std, _, _), said in tries.run():
        if name not in names:
            names.append(name)
        if said:
            wrong.setdefault(name, []).append("%s -std=%s: %s" % (compiler, std, said))
    for name in names:
        for said in wrong.get(name, []):
            print("# " + said.replace("\n", "\n# "))
        say(name not in wrong, name)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
