#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CPython: asyncio, multiprocessing, subprocess, selectors, threads with eventfds, descriptors that
are passed on; cpython-program.py is the program."""

import json
import os
import sys

import harness


def scenario(side):
    # The system's own, which uses the system's libraries.
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        python = sys.executable
    script = os.path.join(harness.HERE, "cpython-program.py")
    p = side.start([python, script], env={"SCALE": "10" if harness.LONG else "1",
                                          "PYTHONDONTWRITEBYTECODE": "1"})
    status = p.wait(harness.LIMIT - 20)
    side.require(status == 0, "Python ends with status 0 in time", p.said())
    said = json.loads(p.text.strip().splitlines()[-1])
    side.check(said["mapped"] == side.pollux, "Python itself sees the drop-in, or none",
               p.said())
    if side.pollux:
        side.check(said["served"] == [1, 1], "its eventfds and epolls are served", said["served"])
        side.check(p.adopted("epolls") >= 5 and p.adopted("eventfds") >= 8,
                   "the statistics say so, too", p.said())
    return said


def body(test):
    pair = test.both(scenario)
    if pair:
        plain, pollux = pair
        for what in plain["results"]:
            test.compare("results of " + what, plain["results"][what], pollux["results"].get(what))
        test.compare_rates(plain["rates"], pollux["rates"], lambda side: scenario(side)["rates"])


harness.main(body)
