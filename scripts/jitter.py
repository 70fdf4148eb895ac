#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a command on a machine that is unfair to it.

A busy process on each CPU competes with the threads of the command and of all its children, and
again and again some of these, by chance, run only when nothing else wants to: for a hundredth
to half a second each, in which the others run on.  What counts on two threads being about equally
fast, or on a moment that is long enough, fails here within minutes, where it would have taken a
thousand runs of the whole suite.  Nothing else is done to the command: no signal, no stop, no
change of what it can see but the policy of its threads.

    scripts/jitter.py [--seed N] -- scripts/run-tests.py --only 'plain/conformance-pollux/*'

It takes the right to give threads back their policy, as root has it.
"""

import argparse
import os
import random
import subprocess
import sys
import time

from suite import busy

HELD_SECONDS = 0.01, 0.05, 0.2, 0.5
PAUSE_SECONDS = 0.001, 0.005, 0.02
SHARE = 0.3
# Builds need not be late.
LEFT_ALONE = ("ninja", "meson", "cc1", "as", "ld", "collect2", "clang", "gcc")


def children_of():
    """Every process's children."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                stat = f.read()
        except OSError:
            continue
        parent = int(stat[stat.rindex(")") + 2:].split()[1])
        children.setdefault(parent, []).append(int(name))
    return children


def threads_below(pid):
    children, found, todo = children_of(), [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        for p in below:
            try:
                with open("/proc/%d/comm" % p, encoding="utf-8", errors="replace") as f:
                    if f.read().strip() not in LEFT_ALONE:
                        found += [int(t) for t in os.listdir("/proc/%d/task" % p)]
            except OSError:
                pass
    return found


def hold_back(thread):
    """True if the thread runs only when nothing else wants to, from now on."""
    try:
        # Real-time priorities that a test has asked for are its own.
        if os.sched_getscheduler(thread) != os.SCHED_OTHER:
            return False
        os.sched_setscheduler(thread, os.SCHED_IDLE | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    except ProcessLookupError:
        return False
    return True


def let_go(thread):
    try:
        # So are those that it has asked for meanwhile.
        if os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK == os.SCHED_IDLE:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    except ProcessLookupError:
        pass


def disturb(command, chance):
    held = {}
    while command.poll() is None:
        now = time.monotonic()
        for thread in [t for t, until in held.items() if until <= now]:
            let_go(thread)
            del held[thread]
        for thread in threads_below(command.pid):
            if thread not in held and chance.random() < SHARE and hold_back(thread):
                held[thread] = now + chance.choice(HELD_SECONDS)
        time.sleep(chance.choice(PAUSE_SECONDS))
    for thread in held:
        let_go(thread)


def main():
    parser = argparse.ArgumentParser(description="Runs a command on a machine that is unfair to it.")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    args = parser.parse_args()

    print("jitter: seed %d" % args.seed, flush=True)
    beside = busy.start(os.cpu_count() or 1)
    command = subprocess.Popen(args.command)
    try:
        # This process must not be late itself.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        disturb(command, random.Random(args.seed))
    except PermissionError:
        print("jitter: not permitted to change policies; root is", file=sys.stderr)
        command.kill()
        command.wait()
        return 2
    except KeyboardInterrupt:
        command.wait()
    finally:
        busy.end(beside)
    return command.returncode if command.returncode >= 0 else 128 - command.returncode


if __name__ == "__main__":
    sys.exit(main())
