#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds Pollux in every way that is tested, runs the whole test suite and counts.

The tests themselves are declared in the meson.build files; this program reads them from meson's
own description of a build folder, so that a test needs to be named in one place only.  Each cmocka
test function counts as one test.  A program that crashes, outlives its time, runs fewer tests than
it announced or runs none at all is a failure, whatever its exit status.

The last line printed is "N passed, N failed, N skipped".
"""

import argparse
import ctypes
import fnmatch
import os
import resource
import sys
import time

from suite import build, busy, checks, models, schedule
from suite.configs import BUILT, CONFIGS, Config
from suite.outcome import FAIL, PASS, SKIP, TOP, Result, Unit, matches
from suite.report import Progress, report, say, write_summary

# Nothing can run before it is built.
BUILD_FIRST = float("inf")
# Beside busy processes each test has little of a CPU, and so many more run at once.
BESIDE_BUSY = 20
QUICK = os.path.join(TOP, "tests", "quick.txt")
# The hard limit that some tests need.
DESCRIPTORS = 8192


def excuse(units, path):
    """Failures that a table expects of a machine become skipped tests, with its reason. The table
    has the test (SUITE/NAME), the function and the reason, separated by tabs; the first two may be
    patterns."""
    with open(path, encoding="utf-8") as f:
        table = [l.rstrip("\n").split("\t") for l in f if l.strip() and not l.startswith("#")]
    for u in units:
        for r in u.results:
            for test, name, reason in table:
                if r.outcome == FAIL and fnmatch.fnmatch(u.suite + "/" + u.name, test) and \
                        fnmatch.fnmatch(r.name, name):
                    r.outcome, r.reason = SKIP, reason


def allow_thread_sanitizer():
    """Older run-times of the thread sanitizer refuse the wide address randomisation of newer
    kernels; a process may turn it off for itself and its children."""
    try:
        with open("/proc/sys/vm/mmap_rnd_bits", encoding="ascii") as f:
            bits = int(f.read())
    except (OSError, ValueError):
        return
    if bits > 28:
        libc = ctypes.CDLL(None, use_errno=True)
        addr_no_randomize = 0x0040000
        current = libc.personality(0xFFFFFFFF)
        if current != -1:
            libc.personality(current | addr_no_randomize)


def is_listed(ident, patterns):
    """The last pattern that matches decides; "!" takes out."""
    listed = False
    for p in patterns:
        if fnmatch.fnmatch(ident, p.lstrip("!")):
            listed = not p.startswith("!")
    return listed


def left_out(units, wanted):
    """What a quick run does not have, in two lines."""
    wanted = {u.ident for u in wanted}
    suites, some = [], []
    for suite in sorted({u.suite for u in units}):
        without = [u.name for u in units if u.suite == suite and u.ident not in wanted]
        if len(without) == sum(u.suite == suite for u in units) and suite != "model":
            suites.append(suite)
        elif suite == "model":
            some.append("%d models, not changed" % len(without))
        elif without:
            some.append("%d of %s (%s)" % (len(without), suite, ", ".join(without[:3])
                                           + (" ..." if len(without) > 3 else "")))
    return ["Left out, for make check: clang, sanitizers, aarch64; suites %s;" % ", ".join(suites),
            "    " + "; ".join(some) + "."]


class Run:
    """What is to be done, and what has come of it."""

    def __init__(self, args, configs):
        self.args = args
        self.configs = configs
        self.units = []
        self.costs = schedule.read_costs()
        self.watch = schedule.Watch()
        self.progress = Progress()
        self.listed = None
        self.left_out = []
        # What is to run when everything is built.
        self.later = []
        if args.listed:
            with open(args.listed, encoding="utf-8") as f:
                self.listed = [l.strip() for l in f if l.strip() and not l.startswith("#")]

    def wants(self, ident):
        if self.listed is not None and not is_listed(ident, self.listed):
            return False
        return matches(ident, self.args.only)

    # Tasks: each does something and returns those that are possible after it.

    def task(self, unit):
        schedule.weigh(unit, self.costs, self.args.jobs)
        self.units.append(unit)
        self.progress.more(1)
        return schedule.Task(lambda: self.run(unit), unit.weight, unit.expected)

    def run(self, unit):
        schedule.run_unit(unit, self.watch)
        if unit.suite == "model" and not unit.failed:
            models.checked(unit.name)
        self.progress.say(unit)

    def checks(self, table):
        return [self.task(checks.unit(name, argv)) for name, argv in table.items()
                if not self.args.config and self.wants("tree/check/" + name)]

    def config(self, config, jobs):
        """Configures, then compiles and runs the tests; for models the first is enough."""
        unit = Unit(config.name, "build", os.path.basename(config.folder), [], {}, 0, TOP)
        unit.units = []

        def configured():
            start = time.monotonic()
            wrong = build.configure(config)
            unit.seconds = time.monotonic() - start
            if wrong:
                self.built(unit, [Result("build", FAIL, wrong)])
                return []
            units = build.units_of(config, self.args.long)
            wanted = [u for u in units if self.wants(u.ident)]
            if self.args.quick:
                wanted = self.without_unchanged_models(wanted)
                self.left_out = left_out(units, wanted)
            at_once = [u for u in wanted if u.suite == "model"]
            unit.units = [u for u in wanted if u.suite != "model"]
            return [self.task(u) for u in at_once] + [schedule.Task(compiled, jobs, BUILD_FIRST)]

        def compiled():
            start = time.monotonic()
            whole = not self.args.only and not self.args.listed
            targets = build.targets_of(config, unit.units) if whole else \
                sorted(build.targets_for(config, {u.ident for u in unit.units}))
            if config.name == "plain" and self.wants("tree/check/layering"):
                targets = targets and sorted(set(targets) | set(build.targets_in(config, "libraries")))
            results = [build.compile_targets(config, targets, jobs)]
            unit.seconds += time.monotonic() - start
            if whole:
                results += build.undeclared(config)
            self.built(unit, results)
            if results[0].outcome == FAIL:
                return []
            after = self.checks(checks.AFTER_PLAIN) if config.name == "plain" else []
            after += [self.task(u) for u in unit.units]
            if self.args.busy:
                self.later += after
                return []
            return after

        return schedule.Task(configured, 1, BUILD_FIRST)

    def built(self, unit, results):
        unit.results = results
        if unit.failed or self.wants(unit.ident) or self.args.listed:
            self.units.append(unit)
            self.progress.more(1)
            self.progress.say(unit)

    def without_unchanged_models(self, units):
        changed = models.changed({u.name for u in units if u.suite == "model"})
        return [u for u in units if u.suite != "model" or u.name in changed]

    def everything(self):
        args = self.args
        tasks = []
        wanted = [c for c in self.configs if self.builds(c)]
        for config in wanted:
            if args.built:
                units = build.units_of(config, args.long)
                tasks += [self.task(u) for u in units if matches(u.ident, args.only)]
            else:
                tasks.append(self.config(config, max(1, args.jobs // len(wanted))))
        tasks += self.checks(checks.BEFORE_BUILDS)
        schedule.run_tasks(tasks, args.jobs)
        if self.later:
            beside = busy.start(args.busy)
            try:
                schedule.run_tasks(self.later, args.jobs * BESIDE_BUSY)
            finally:
                busy.end(beside)

    def builds(self, config):
        args = self.args
        if args.only and all(g.startswith("tree/") for g in args.only):
            return config.name == "plain" and any(self.wants("tree/check/" + name)
                                                  for name in checks.AFTER_PLAIN)
        return not args.only or config.suites or args.long or \
            matches("%s/build/%s" % (config.name, os.path.basename(config.folder)), args.only)

    def rule_coverage(self):
        """Comes last, for it looks at what has run."""
        if self.args.config or not self.wants("tree/check/rule-coverage"):
            return
        whole = not self.args.only and not self.args.listed
        unit = checks.rule_coverage(self.units, whole)
        schedule.run_tasks([self.task(unit)], 1)
        if whole and not unit.failed:
            say()
            say(unit.results[0].text.rstrip("\n"))


def limit_descriptors():
    """As a login on Debian has it, and room above for tests that raise their own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # With more a test may need more, and nobody sees it.
    soft = min(soft, 1024)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, DESCRIPTORS)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        say(f"The hard limit of descriptors is {hard}, and cannot be raised: tests that need up to "
            f"{DESCRIPTORS} will fail.")


def main():
    parser = argparse.ArgumentParser(description="Builds Pollux and runs its test suite.")
    parser.add_argument("--jobs", type=int, default=2, metavar="N",
                        help="CPUs to be kept busy (default 2); tests that sleep run many at a time")
    parser.add_argument("--only", action="append", metavar="GLOB",
                        help="run only tests whose CONFIG/SUITE/NAME matches; may be repeated")
    parser.add_argument("--config", action="append", choices=[c.name for c in CONFIGS],
                        help="build and run only in these configurations; may be repeated")
    parser.add_argument("--quick", action="store_true",
                        help="only what tests/quick.txt names, and models that have changed")
    parser.add_argument("--listed", metavar="FILE",
                        help="of the plain build only what this file names")
    parser.add_argument("--built", metavar="FOLDER",
                        help="build nothing: run what another machine has built in this folder")
    parser.add_argument("--cannot", metavar="FILE",
                        help="with --built: a table of tests that fail where they run, and why")
    parser.add_argument("--slowdown", type=float, default=1, metavar="N",
                        help="with --built: tests may take N times as long (default 1)")
    parser.add_argument("--long", action="store_true", help="the long forms of the tests")
    parser.add_argument("--busy", type=int, metavar="N",
                        help="keep N processes busy beside the tests, once everything is built")
    parser.add_argument("--costs", action="store_true",
                        help="put into tests/costs.tsv what the tests have cost, on a quiet machine")
    parser.add_argument("--list", action="store_true",
                        help="name the test programs of the folders that are built, run nothing")
    args = parser.parse_args()

    os.chdir(TOP)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    limit_descriptors()
    allow_thread_sanitizer()
    if args.quick:
        args.listed = QUICK
    configs = [c for c in CONFIGS if not args.config or c.name in args.config]
    if args.listed:
        configs = [c for c in configs if c.name == "plain"]
    if args.built:
        name = os.path.basename(os.path.abspath(args.built))
        configs = [Config(name, args.built, None, [], BUILT, [], args.slowdown)]
        args.config = [name]
    if args.only and not args.config:
        # A pattern that names a configuration wants only that one built.
        named = [c for c in configs if any(g.startswith(c.name + "/") for g in args.only)]
        if named and all(g.split("/")[0] in [c.name for c in CONFIGS] + ["tree"]
                         for g in args.only):
            configs = named

    run, interrupted = Run(args, configs), False
    if args.list:
        for c in configs:
            if build.is_configured(c):
                for u in build.units_of(c, args.long):
                    if run.wants(u.ident):
                        say(u.ident)
        return 0

    try:
        run.everything()
        run.rule_coverage()
    except KeyboardInterrupt:
        # What has run is reported.
        interrupted = True
    finally:
        run.watch.end_all()
        run.progress.end()
    units = run.units
    if args.cannot:
        excuse(units, args.cannot)
    if not units:
        say("no test matches")
        return 2
    failures = report(units, brief=args.quick)
    write_summary(os.path.join(TOP, "build", "test-summary.xml"), units)
    if args.costs:
        schedule.write_costs(units)
    for line in run.left_out:
        say(line)
    say()
    totals = {o: sum(r.outcome == o for u in units for r in u.results) for o in (PASS, FAIL, SKIP)}
    say("%d passed, %d failed, %d skipped" % (totals[PASS], totals[FAIL], totals[SKIP]))
    return 1 if failures or interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
