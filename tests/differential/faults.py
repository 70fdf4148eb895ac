#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows that the differential tester bites: each fault that is built in on purpose is found.

The library that is preloaded has all the faults of src/base/inject.h; POLLUX_INJECT chooses one.
Without one there must be no difference, or what is found would prove nothing.
"""

import argparse
import os
import subprocess
import sys

import lockstep

# Which profile has the fault in its reach.
FAULTS = [
    ("lost_event", "inproc"),
    ("double_edge", "inproc"),
    ("wrong_order", "inproc"),
    ("wrong_errno", "inproc"),
    ("forgotten_del", "inproc"),
    ("wrong_count", "inproc"),
    ("wrong_data", "inproc"),
    ("wrong_poll", "inproc"),
    ("wrong_flag", "inproc"),
    ("forgotten_count", "nested"),
    ("lost_eviction:3", "fork"),
]

# Those that take more than one thread to see.
THREAD_FAULTS = [
    ("lost_wake:20", "woken"),
    ("forgotten_del", "removed"),
]


class Tester(lockstep.Tester):
    """The second side is the program with the library preloaded."""

    def __init__(self, args, profile):
        self.profile = profile
        args.storm = None
        super().__init__(args)

    def argv(self, pollux, *rest):
        front = ["env", "LD_PRELOAD=" + self.args.preload] if pollux else []
        return front + [self.args.binary] + [str(r) for r in rest]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--threads", required=True)
    parser.add_argument("--sequences", type=int, default=1000, help="how many before giving up")
    args = parser.parse_args()
    args.preload = os.path.abspath(args.preload)

    results = []
    for profile in sorted({p for _, p in FAULTS}):
        # A slow machine is no difference. Where a fault is to be found a hang is one, too.
        args.patience = 30
        tester = Tester(args, profile)
        number, done = tester.run(tester.profile, 1, args.sequences)
        results.append((number is None, "no fault, no difference: %s" % profile,
                        "differs at sequence %s" % number))
    for fault, profile in FAULTS:
        args.patience = 5
        tester = Tester(args, profile)
        tester.env["POLLUX_INJECT"] = fault
        number, done = tester.run(tester.profile, 1, args.sequences)
        results.append((number is not None, "%s is found: %s" % (fault, profile),
                        "not in %d steps" % tester.steps))
        if number is not None:
            print("# %s: after %d steps" % (fault, tester.steps), flush=True)
    for fault, invariant in THREAD_FAULTS:
        env = dict(os.environ, LD_PRELOAD=args.preload, POLLUX_INJECT=fault)
        # It takes a meeting of threads, which a busy machine does not arrange at once.
        found = False
        for seed in range(1, 31):
            done = subprocess.run([args.threads, "0.5", str(seed), invariant], env=env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=100)
            found = b"not ok" in done.stdout
            if found:
                break
        results.append((found, "%s is found: threads, %s" % (fault, invariant), "no test fails"))
    for i, (good, what, why) in enumerate(results):
        if not good:
            print("# " + why)
        print("%s %d - %s" % ("ok" if good else "not ok", i + 1, what), flush=True)
    print("1..%d" % len(results))
    return 0 if all(r[0] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
