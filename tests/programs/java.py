#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Java NIO: selectors and their wake-ups, sockets, pipes, asynchronous channels, child processes;
Nio.java is the program, started from its source, so that the compiler runs under Pollux, too."""

import os

import harness


def scenario(side):
    source = os.path.join(harness.HERE, "Nio.java")
    java = side.start(["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", source],
                      env={"SCALE": "10" if harness.LONG else "1", "JAVA_TOOL_OPTIONS": ""})
    status = java.wait(harness.LIMIT - 20)
    lines = [l.split("\t") for l in java.text.splitlines()]
    side.require(status == 0 and ["end"] in lines, "java ends with status 0 in time", java.said())
    side.check(["mapped", "true" if side.pollux else "false"] in lines,
               "java itself sees the drop-in, or none", java.text)
    if side.pollux:
        side.check(java.adopted("epolls") >= 4 and java.adopted("eventfds") >= 3,
                   "selectors and their wake-ups were served", java.said())
    side.check("Exception" not in harness.read_text(java.err), "no exception", java.said())
    return ({l[1]: l[2] for l in lines if l[0] == "result"},
            {l[1]: float(l[2]) for l in lines if l[0] == "rate"})


def body(test):
    test.need("javac")
    pair = test.both(scenario)
    if pair:
        (plain, rates), (pollux, rates_too) = pair
        for what in plain:
            test.compare("results of " + what, plain[what], pollux.get(what))
        test.compare_rates(rates, rates_too, lambda side: scenario(side)[1])


harness.main(body)
