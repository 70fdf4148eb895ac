#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""node: messages between worker threads (each wakes a loop through an eventfd), http, the thread
pool, files, signals, timers and child processes; node.js is the program."""

import json
import os

import harness


def scenario(side):
    script = os.path.join(harness.HERE, "node.js")
    node = side.start(["node", script], env={"SCALE": "8" if harness.LONG else "1",
                                             "TMPDIR": side.dir})
    status = node.wait(harness.LIMIT - 20)
    side.require(status == 0, "node ends with status 0 in time", node.said())
    said = json.loads(node.text)
    side.check(said["mapped"] == side.pollux, "node itself sees the drop-in, or none",
               node.said())
    if side.pollux:
        side.check(node.adopted("epolls") >= 5 and node.adopted("eventfds") >= 20,
                   "loops and their wakes were served", node.said())
    return said


def body(test):
    test.need("node")
    pair = test.both(scenario)
    if pair:
        plain, pollux = pair
        for what in plain["results"]:
            test.compare("results of " + what, plain["results"][what], pollux["results"].get(what))
        test.compare_rates(plain["rates"], pollux["rates"], lambda side: scenario(side)["rates"])


harness.main(body)
