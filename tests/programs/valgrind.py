#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs under valgrind's memcheck: it finds nothing in them that it does not find without us."""

import os
import re

import harness

MEMCHECK = ["valgrind", "-q", "--error-exitcode=9"]


def errors(program):
    """What memcheck says, and its own messages but for a system call that it does not know."""
    text = harness.read_text(program.err)
    said = re.findall(r"^==\d+== *(\S.*)$", text, re.M)
    return said + re.findall(r"^--\d+-- (?!WARNING: unhandled|You may|Read the|Nevertheless|it at )"
                             r"(.*)$", text, re.M) + re.findall(r"^sigprocmask.*$", text, re.M)


def scenario(side):
    threads = os.path.join(os.path.dirname(side.test.pollux), "bench", "stress-epoll")
    parts = {
        "starts": ["sh", "-c", "/bin/true; /bin/true"],
        "events": [threads, "--threads", "3", "--events", "500"],
    }
    found = {}
    for name, argv in parts.items():
        p = side.run(MEMCHECK + argv, label=name, timeout=120)
        found[name] = [p.status, errors(p)]
        if side.pollux and name == "events":
            side.check(p.adopted("eventfds"), "eventfds are served", p.said())
    return found


def body(test):
    test.need("valgrind")
    pair = test.both(scenario)
    if pair:
        for name in pair[0]:
            test.compare("what memcheck finds: " + name, pair[0][name], pair[1][name])


harness.main(body)
