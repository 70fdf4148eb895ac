#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stress-ng's stressors for what Pollux serves, with --verify: no complaint, and work done at a
rate like that of the plain run. It says "successful run" also when a stressor did nothing."""

import re

import harness

# What each must have had served in process, by the statistics.
STRESSORS = {"epoll": "epolls", "eventfd": None, "pipe": None, "timerfd": None, "poll": None,
             "aio": None, "aiol": "contexts"}
# Others that go where objects leave the process, or where descriptors change their meaning.
LONG_ONLY = ["close", "clone", "daemon", "dup", "fork", "pipeherd", "sigfd", "sigio",
             "sigpipe", "sockfd", "sockpair", "splice", "switch", "tee", "vfork", "vforkmany",
             "vm-splice", "zombie"]
SECONDS = 10 if harness.LONG else 2
INSTANCES = 2


def run(side, name):
    """However busy the machine is, there is a time in which something is done."""
    ops, rate, complaints, p = run_for(side, name, SECONDS)
    if not ops and p.status == 0:
        side.test.note("%s did nothing in %d s: once more" % (name, SECONDS))
        ops, rate, complaints, p = run_for(side, name, 10 * SECONDS)
    side.check(p.status == 0 and ops > 0 and not re.search(r"^stress-ng: fail", said(p), re.M),
               "%s: %s" % (name, "work is done and verified"), p.said())
    served = STRESSORS.get(name)
    if side.pollux and served:
        count = p.contexts() if served == "contexts" else p.adopted(served)
        side.check(count >= INSTANCES, "%s: its %s were served" % (name, served),
                   p.said())
    return rate, complaints


def said(p):
    return p.text + harness.read_text(p.err)


def run_for(side, name, seconds):
    p = side.start(["stress-ng", "--" + name, str(INSTANCES), "-t", "%ds" % seconds, "--verify",
                    "--metrics", "--temp-path", side.dir], label=name)
    comm = "stress-ng-" + name.replace("vm-", "vm")

    def at_work():
        found = []
        for pid in harness.descendants(p.pid):
            own = harness.read_text("/proc/%d/comm" % pid).strip()
            if own and comm.startswith(own[:15]) and own != "stress-ng":
                found.append(pid)
        return found

    pids = harness.wait_for(at_work, 10)
    if pids and name in STRESSORS:
        side.prove(pids[0], "a process of the %s stressor" % name)
    p.wait(seconds + 100)
    text = said(p)
    metrics = re.search(r"metrc: \[\d+\] %s\s+(\d+)\s+([\d.]+)" % re.escape(name), text)
    ops = int(metrics.group(1)) if metrics else 0
    complaints = re.findall(r"^stress-ng: (?:fail|error|warn):.*", text, re.M)
    complaints = [re.sub(r"\[?\d+\]?", "N", c) for c in complaints]
    rate = ops / float(metrics.group(2)) if metrics else 0.0
    return ops, rate, sorted(set(complaints)), p


def body(test):
    test.need("stress-ng")
    names = list(STRESSORS) + (LONG_ONLY if harness.LONG else [])

    def scenario(side):
        return {name: run(side, name) for name in names}

    pair = test.both(scenario)
    if not pair:
        return
    for name in names:
        (plain, wrong), (pollux, wrong_too) = pair[0][name], pair[1][name]
        test.compare(name + ": complaints", wrong, wrong_too)
        test.compare_rates({name: plain}, {name: pollux},
                           lambda side: {name: run(side, name)[0]})


harness.main(body)
