#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs random sequences of calls on the kernel and on Pollux at the same time and compares.

The two sides print a digest of each sequence.  Where the digests differ the sequence is run alone,
steps are taken out of it as long as it still differs, and what is left is printed as C: the calls
with the kernel's results, and beside the first that differs what Pollux gave.

Each profile counts as one test; the output is TAP.
"""

import argparse
import os
import re
import select
import subprocess
import sys
import tempfile
import time

SHOW_SECONDS = 10

# So many events; Pollux may have so many more of them; their bits (log_may).
MAY = re.compile(r"(\d+)\+(\d+)/([0-9a-f]+)$")


def word_agrees(kernel, pollux):
    if kernel == pollux:
        return True
    k, p = MAY.match(kernel), MAY.match(pollux)
    if not k or not p or k.group(2) != p.group(2):
        return False
    found, more = int(k.group(1)), int(k.group(2))
    return found <= int(p.group(1)) <= found + more and \
        not int(k.group(3), 16) & ~int(p.group(3), 16)


def agrees(kernel, pollux):
    """Whether a line of the kernel's and one of Pollux's say the same, as far as it is promised."""
    if kernel == pollux:
        return True
    k, p = kernel.split(), pollux.split()
    return len(k) == len(p) and all(word_agrees(*words) for words in zip(k, p))


def texts_agree(kernel, pollux):
    k, p = kernel.splitlines(), pollux.splitlines()
    return len(k) == len(p) and all(agrees(*lines) for lines in zip(k, p))


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


class Side:
    """One of the two runs of a range of sequences."""

    def __init__(self, argv, env):
        self.said = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=self.said)
        self.rest = b""
        self.lines = []
        self.error = b""
        self.open = True

    def read(self):
        data = os.read(self.proc.stdout.fileno(), 65536)
        if not data:
            self.open = False
            return
        parts = (self.rest + data).split(b"\n")
        self.rest = parts.pop()
        self.lines += parts

    def where(self):
        """What the process and its children are at."""
        found = []
        for pid in [self.proc.pid] + children(self.proc.pid):
            said = ["pid %d" % pid]
            for name in ("comm", "wchan", "syscall"):
                try:
                    with open("/proc/%d/%s" % (pid, name)) as f:
                        said.append(f.read().strip())
                except OSError:
                    pass
            found.append(", ".join(said))
        return "; ".join(found)

    def stop(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.stdout.close()
        self.proc.wait()

    def end(self):
        """How it ended by itself."""
        status = self.proc.wait()
        self.said.seek(0)
        return "status %d; %s" % (status, self.said.read(2000).decode("utf-8", "replace"))


class Tester:
    def __init__(self, args):
        self.args = args
        self.env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        if args.storm:
            self.env["DIFFERENTIAL_STORM"] = str(args.storm)
        adopt = self.env.get("POLLUX_ADOPT")
        # The program reads it, too, on both sides: it says which orders are right.
        self.setting = "POLLUX_ADOPT=%s " % adopt if adopt else ""
        self.steps = 0
        self.digests = ("nothing", "nothing")

    def again(self, profile, number):
        """The kernel's digest of one sequence, to see which side was the odd one."""
        done = subprocess.run(self.argv(False, "run", profile, number, 1), env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)
        return done.stdout.decode().strip()

    def argv(self, pollux, *rest):
        front = [self.args.pollux, "run", "--"] if pollux else []
        return front + [self.args.binary] + [str(r) for r in rest]

    def run(self, profile, first, count, until=None):
        """The number of the first sequence that differs, or None; and how many were run."""
        sides = [Side(self.argv(p, "run", profile, first, count), self.env) for p in (False, True)]
        done, last = 0, time.monotonic()
        self.digests = ("nothing", "nothing")
        try:
            while done < count:
                if until and time.monotonic() > until:
                    break
                fds = [s.proc.stdout for s in sides if s.open]
                ready = select.select(fds, [], [], 1)[0] if fds else []
                for s in sides:
                    if s.proc.stdout in ready:
                        s.read()
                n = min(len(s.lines) for s in sides)
                for a, b in zip(sides[0].lines[:n], sides[1].lines[:n]):
                    a, b = a.decode(), b.decode()
                    if not agrees(a, b):
                        self.digests = (a, b)
                        return first + done, done
                    self.steps += int(a.split()[2])
                    done += 1
                for s in sides:
                    del s.lines[:n]
                if n:
                    last = time.monotonic()
                # One has ended or hangs before this sequence was through.
                elif any(not s.open and not s.lines for s in sides):
                    self.digests = tuple("ended: " + s.end() if not s.open else "was running"
                                         for s in sides)
                    return first + done, done
                elif time.monotonic() - last > self.args.patience:
                    for name, s in zip(("kernel", "Pollux"), sides):
                        if not s.lines:
                            say("# sequence %d hangs: %s" % (first + done, name))
                            say("# " + s.where())
                    return first + done, done
        finally:
            for s in sides:
                s.stop()
        return None, done

    def show(self, pollux, profile, number, keep, before):
        argv = self.argv(pollux, "show", profile, number, ranges(keep), before)
        limit = SHOW_SECONDS + before / 20
        proc = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            out, _ = proc.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            proc.kill()
            out, _ = proc.communicate()
            return out.decode("utf-8", "replace") + "\t/* hangs */\n"
        text = out.decode("utf-8", "replace")
        if proc.returncode:
            text += "\t/* exit status %d */\n" % proc.returncode
        return text

    def differs(self, profile, number, keep, before):
        argv = [self.show(p, profile, number, keep, before) for p in (False, True)]
        return None if texts_agree(*argv) else argv

    def shrink(self, profile, number, ran_before):
        """The kept steps, the sequences needed before, and the two texts."""
        before = 0
        both = self.differs(profile, number, None, 0)
        while not both and before < ran_before:
            before = min(ran_before, before * 8 or 1)
            both = self.differs(profile, number, None, before)
        if not both:
            return None
        total = int(both[0].split(None, 2)[1])
        keep = list(range(total))
        size = (total + 1) // 2
        deadline = time.monotonic() + self.args.shrink
        while size and time.monotonic() < deadline:
            at, smaller = 0, False
            while at < len(keep) and time.monotonic() < deadline:
                trial = keep[:at] + keep[at + size:]
                got = self.differs(profile, number, trial, before) if trial else None
                if got:
                    keep, both, smaller = trial, got, True
                else:
                    at += size
            if size > 1:
                size = (size + 1) // 2
            elif not smaller:
                break
        return keep, before, both

    def describe(self, profile, number, ran_before):
        found = self.shrink(profile, number, ran_before)
        head = "profile %s, sequence %d" % (profile, number)
        if not found:
            return "%s: differed once, after %d others; not when run again\n" \
                   "    kernel then: %s\n    Pollux then: %s\n    kernel now:  %s" \
                   % ((head, ran_before) + self.digests + (self.again(profile, number),))
        keep, before, (kernel, pollux) = found
        text = ["%s differs%s; show it with" % (head, "" if not before else
                                                " after the %d before it" % before),
                "    %sdifferential show %s %d %s %d" % (self.setting, profile, number,
                                                         ranges(keep), before)]
        k, p = kernel.splitlines(), pollux.splitlines()
        at = next((i for i in range(min(len(k), len(p))) if not agrees(k[i], p[i])),
                  min(len(k), len(p)))
        text += k[:at]
        text += ["kernel:"] + k[at:at + 8] + ["Pollux:"] + p[at:at + 8]
        return "\n".join(text)


def ranges(numbers):
    if numbers is None:
        return "-"
    out, i = [], 0
    while i < len(numbers):
        k = i
        while k + 1 < len(numbers) and numbers[k + 1] == numbers[k] + 1:
            k += 1
        out.append(str(numbers[i]) if i == k else "%d-%d" % (numbers[i], numbers[k]))
        i = k + 1
    return ",".join(out)


def say(text):
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", required=True, help="the program differential")
    parser.add_argument("--pollux", required=True, help="the command pollux")
    parser.add_argument("--storm", type=int, help="signals so many microseconds apart, on both sides")
    parser.add_argument("--profile", action="append", help="which; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="number of the first sequence")
    parser.add_argument("--sequences", type=int, default=2000, help="how many of each profile")
    parser.add_argument("--seconds", type=float, help="run for so long instead")
    parser.add_argument("--chunk", type=int, default=2000, help="sequences of one process")
    parser.add_argument("--differences", type=int, default=1, help="stop after so many")
    parser.add_argument("--patience", type=float, default=30, help="seconds before it is a hang")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to shrink a sequence")
    args = parser.parse_args()
    args.binary = os.path.abspath(args.binary)
    args.pollux = os.path.abspath(args.pollux)
    profiles = args.profile or ["inproc", "mixed", "nested", "fork"]
    if os.environ.get("POLLUX_TEST_LONG"):
        args.sequences *= 40

    tester = Tester(args)
    start = time.monotonic()
    until = start + args.seconds if args.seconds else None
    at = {p: args.seed for p in profiles}
    left = {p: args.sequences for p in profiles}
    found = {p: 0 for p in profiles}
    told = {}
    while sum(found.values()) < args.differences:
        turn = [p for p in profiles if until or left[p] > 0]
        if not turn or (until and time.monotonic() > until):
            break
        for p in turn:
            count = args.chunk if until else min(args.chunk, left[p])
            number, done = tester.run(p, at[p], count, until)
            if number is None:
                at[p] += done
                left[p] -= done
                continue
            text = tester.describe(p, number, done)
            found[p] += 1
            told.setdefault(p, []).append(text)
            say("\n".join("# " + line for line in text.splitlines()))
            at[p] = number + 1
            left[p] -= done + 1
            if sum(found.values()) >= args.differences:
                break
    seconds = time.monotonic() - start
    for i, p in enumerate(profiles):
        say("%s %d - %s: sequences %d to %d" % ("not ok" if found[p] else "ok", i + 1, p,
                                                args.seed, at[p] - 1))
    say("1..%d" % len(profiles))
    say("# %d steps, %d differences, %.0f s, %.0f steps/s"
        % (tester.steps, sum(found.values()), seconds, tester.steps / max(seconds, 0.001)))
    return 1 if sum(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
