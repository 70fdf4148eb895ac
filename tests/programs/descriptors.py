#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that close all descriptors, that lower and raise their limit, and that become daemons;
descriptors-program.py is what runs, with the system's Python."""

import json
import os
import signal
import sys

import harness

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
SCRIPT = os.path.join(harness.HERE, "descriptors-program.py")


def part(side, name):
    p = side.run([PYTHON, SCRIPT, name], label=name)
    side.require(p.status == 0 and p.text.startswith("{"), name + " ends with status 0", p.said())
    said = json.loads(p.text)
    side.check(said["mapped"] == side.pollux and said["served"] == (2 if side.pollux else 0),
               name + ": Python sees the drop-in and is served, or neither", p.said())
    return said["results"]


def daemon(side):
    report = side.path("report")
    p = side.run([PYTHON, SCRIPT, "daemon", report], label="daemon")
    side.require(p.status == 0, "the parent of the daemon ends with status 0", p.said())
    side.require(harness.wait_for(lambda: os.path.exists(report), 30), "the daemon reports",
                 p.said())
    said = json.loads(harness.read_text(report))
    pid = said.pop("pid")
    side.prove(pid, "the daemon")
    side.check(said.pop("mapped") == side.pollux, "the daemon sees the drop-in, or does not",
               p.said())
    side.check(pid in harness.descendants(os.getpid()), "the daemon has left its parent")
    os.kill(pid, signal.SIGTERM)
    ended = harness.wait_for(lambda: pid not in harness.descendants(os.getpid()), 30)
    side.check(ended, "the daemon ends on SIGTERM", p.said())
    end = harness.read_text(report + ".end")
    side.check(end, "the daemon ends in good order", p.said())
    return said, end


def doorbells_apart(plain, pollux):
    """The program has two epolls in which it sleeps: each takes one descriptor (compatibility.md)."""
    error, last, count = pollux
    return [error, last, count + min(2, max(0, plain[2] - count))]


def body(test):
    for name in ("closerange", "close_range", "closefrom", "close", "everything", "limits"):
        pair = test.both(lambda side: part(side, name))
        if pair and isinstance(pair[0], dict):
            for what in pair[0]:
                pollux = pair[1].get(what)
                if what.startswith("end at ") and pollux:
                    pollux = doorbells_apart(pair[0][what], pollux)
                test.compare("results of %s: %s" % (name, what), pair[0][what], pollux)
        elif pair:
            test.compare("results of " + name, *pair)
    pair = test.both(daemon)
    if pair:
        test.compare("results of the daemon", *pair)


harness.main(body)
