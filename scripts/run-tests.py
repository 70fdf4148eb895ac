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
import concurrent.futures
import ctypes
import fnmatch
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PASS, FAIL, SKIP = "passed", "failed", "skipped"
EXIT_SKIP = 77
OUTPUT_KEPT = 24000
# Of what a failed test has said, once more at the end.
LINES_AT_THE_END = 6
OUTPUT_READ = 16 << 20

ASAN_OPTIONS = ":".join([
    # The drop-in is loaded before the run-time of the sanitizer on purpose; calls still reach
    # both, the drop-in first.
    "verify_asan_link_order=0",
    "detect_leaks=1",
    "allocator_may_return_null=1",
    "detect_stack_use_after_return=0",
    "exitcode=66",
])
UBSAN_OPTIONS = "print_stacktrace=1:halt_on_error=1"
TSAN_OPTIONS = "halt_on_error=0:exitcode=66:second_deadlock_stack=1:history_size=4:die_after_fork=0"

SANITIZER_REPORT = re.compile(
    r"(WARNING|ERROR|FATAL): (Address|Thread|Leak|UndefinedBehavior)Sanitizer"
    r"|^.{1,300}: runtime error: ", re.M)


class Config:
    """One way to build Pollux, and what is run in it."""

    def __init__(self, name, folder, compiler, options, suites, long_suites, slowdown):
        self.name = name
        self.folder = os.path.join(TOP, folder)
        self.compiler = compiler
        self.options = options
        self.suites = suites
        self.long_suites = long_suites
        self.slowdown = slowdown


SANITIZED = ["-Db_lundef=false", "-Dlockdep=true", "-Ddelays=true"]
BUILT_ONCE = ["conformance-kernel", "model", "programs"]
EVERYWHERE = ["conformance-pollux", "conformance-async", "torture-async", "native", "history",
              "torture", "examples", "fault", "cli", "differential"]

CONFIGS = [
    Config("plain", "build", None, [], EVERYWHERE + BUILT_ONCE, [], 1),
    Config("clang", "build-clang", "clang", [], [], EVERYWHERE, 1),
    Config("asan", "build-asan", "gcc", ["-Db_sanitize=address,undefined"] + SANITIZED,
           EVERYWHERE, ["conformance-kernel"], 3),
    # The command itself has one thread.
    Config("tsan", "build-tsan", "gcc", ["-Db_sanitize=thread"] + SANITIZED,
           [s for s in EVERYWHERE if s != "cli"], ["conformance-kernel"], 4),
]
# Built elsewhere, for another machine (--built), and run there; models are nobody's machine.
BUILT = EVERYWHERE + ["conformance-kernel"]


class Result:
    def __init__(self, name, outcome, text="", reason=""):
        self.name = name
        self.outcome = outcome
        self.text = text
        self.reason = reason


class Unit:
    """One program to run: a test binary, the models, or a check of the tree."""

    def __init__(self, config, suite, name, argv, env, timeout, cwd):
        self.config = config
        self.suite = suite
        self.name = name
        self.argv = argv
        self.env = env
        self.timeout = timeout
        self.cwd = cwd
        self.results = []
        self.seconds = 0.0

    @property
    def ident(self):
        return "%s/%s/%s" % (self.config, self.suite, self.name)


def matches(ident, only):
    if not only:
        return True
    return any(fnmatch.fnmatch(ident, g) or fnmatch.fnmatch(ident, "*" + g + "*") for g in only)


# --- reading what a test program says ---------------------------------------------------------

PLAN = re.compile(r"\[==========\] (?:\S+: )?Running (\d+) test\(s\)\.")
MARK = re.compile(r"\[( RUN      |       OK |  FAILED  |  SKIPPED |  ERROR   )\] (.*)$")
LISTED = re.compile(r"^(?:\S+: )?\d+ test\(s\)")
TAP = re.compile(r"^(not ok|ok)\b(?:[ \t]+\d+)?[ \t]*(?:-[ \t]+)?(.*)$")
TAP_SKIP = re.compile(r"^(.*?)[ \t]*#[ \t]*SKIP\b[ \t:]*(.*)$", re.I)
REASON = re.compile(r"^\s*skip(?:ped)?:\s*(.*)$", re.I)


class CmockaReader:
    """Follows cmocka's standard output: plan, start and end of each test function."""

    def __init__(self):
        self.planned = 0
        self.group = 0
        self.found = {}
        self.running = None
        self.lines = []

    def line(self, line):
        plan = PLAN.search(line)
        if plan:
            self.planned += int(plan.group(1))
            self.group += 1
            self.running = None
            return
        mark = MARK.search(line)
        if not mark:
            self.lines.append(line)
            return
        what, name = mark.group(1).strip(), mark.group(2).strip()
        if what == "RUN":
            self.running = name
            self.lines = []
            return
        if what == "ERROR" and (name.startswith("---") or name != self.running):
            self.lines.append(line)
            return
        if LISTED.match(name):
            return
        before = line[:mark.start()].strip()
        if before:
            self.lines.append(before)
        self.end(name, what)

    def end(self, name, what):
        key = (self.group, name)
        text = "\n".join(self.lines)
        old = self.found.get(key)
        if what == "OK":
            new = Result(name, PASS)
        elif what == "SKIPPED":
            new = Result(name, SKIP, text, skip_reason(self.lines))
        else:
            new = Result(name, FAIL, text)
        # cmocka lists failed and skipped tests again at the end; a failure is never taken back.
        if old is None or (new.outcome == FAIL and old.outcome != FAIL):
            self.found[key] = new
        if self.running == name:
            self.running = None
            self.lines = []


def skip_reason(lines):
    said = [l.strip() for l in lines if l.strip()]
    for l in reversed(said):
        m = REASON.match(l)
        if m:
            return m.group(1)
    return said[-1] if said else "no reason given"


def read_cmocka(text):
    reader = CmockaReader()
    for line in text.splitlines():
        reader.line(line)
    results = list(reader.found.values())
    if reader.running is not None:
        results.append(Result(reader.running, FAIL,
                              "\n".join(reader.lines + ["the program ended inside this test"])))
    elif len(results) < reader.planned:
        results.append(Result("(all tests)", FAIL, "%d of %d tests did not run"
                              % (reader.planned - len(results), reader.planned)))
    return results


def read_tap(text):
    results, lines = [], []
    for line in text.splitlines():
        m = TAP.match(line.strip())
        if not m:
            lines.append(line)
            continue
        name = m.group(2).strip() or "test %d" % (len(results) + 1)
        skip = TAP_SKIP.match(name)
        if skip:
            results.append(Result(skip.group(1), SKIP, "", skip.group(2) or "no reason given"))
        elif m.group(1) == "ok":
            results.append(Result(name, PASS))
        else:
            results.append(Result(name, FAIL, "\n".join(lines)))
        lines = []
    return results


def tail(text):
    if len(text) <= OUTPUT_KEPT:
        return text
    return "[... %d characters left out ...]\n" % (len(text) - OUTPUT_KEPT) + text[-OUTPUT_KEPT:]


def judge(unit, status, timed_out, text):
    """Turns an exit status and an output into a list of results with at least one entry."""
    if unit.suite == "examples":
        results = []
    elif PLAN.search(text):
        results = read_cmocka(text)
    else:
        results = read_tap(text)

    if timed_out:
        why = "did not end within %d seconds" % unit.timeout
    elif status is None:
        why = text.strip() or "could not be started"
    elif status < 0:
        try:
            why = "killed by " + signal.Signals(-status).name
        except ValueError:
            why = "killed by signal %d" % -status
    elif status == EXIT_SKIP and not results:
        return [Result(unit.name, SKIP, text, skip_reason(text.splitlines()))]
    elif status != 0:
        why = "exit status %d" % status
    elif not results and unit.suite == "examples":
        return [Result(unit.name, PASS)]
    elif not results:
        why = "ran no test"
    else:
        why = ""
    report = SANITIZER_REPORT.search(text)
    if report and not why:
        why = "a sanitizer reported an error in it or in one of its children"

    failed = [r for r in results if r.outcome == FAIL]
    if why and failed:
        failed[-1].text += "\n(%s: %s)" % (unit.name, why)
        if report:
            failed[-1].text += "\n" + text[report.start():]
    elif why:
        results.append(Result("(the program)", FAIL, text + "\n" + why))
    for r in results:
        r.text = tail(r.text)
    return results


def run_unit(unit):
    start = time.monotonic()
    # A file and not a pipe takes the output: a grandchild that outlives the test would keep a
    # pipe open.
    with tempfile.TemporaryFile() as out:
        timed_out = False
        try:
            proc = subprocess.Popen(unit.argv, env=unit.env, cwd=unit.cwd, stdout=out,
                                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                    start_new_session=True)
        except OSError as e:
            unit.results = judge(unit, None, False, "%s: %s" % (unit.argv[0], e.strerror))
            return unit
        try:
            status = proc.wait(timeout=unit.timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
        try:
            os.killpg(proc.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        if timed_out:
            status = proc.wait()
        out.seek(0)
        text = out.read(OUTPUT_READ).decode("utf-8", "replace")
    unit.seconds = time.monotonic() - start
    unit.results = judge(unit, status, timed_out, text)
    return unit


# --- what there is to run ---------------------------------------------------------------------

def base_env(args):
    env = {k: v for k, v in os.environ.items()
           if k.startswith("POLLUX_DELAY") or
           not k.startswith(("POLLUX_", "CMOCKA_")) and k != "LD_PRELOAD"}
    env["LC_ALL"] = "C"
    env["ASAN_OPTIONS"] = ASAN_OPTIONS
    env["UBSAN_OPTIONS"] = UBSAN_OPTIONS
    env["TSAN_OPTIONS"] = TSAN_OPTIONS
    for var, name in (("TSAN_OPTIONS", "tsan.supp"), ("LSAN_OPTIONS", "lsan.supp")):
        path = os.path.join(TOP, "tests", name)
        if os.path.exists(path):
            env[var] = (env[var] + ":" if var in env else "") + "suppressions=" + path
    if args.long:
        env["POLLUX_TEST_LONG"] = "1"
    return env


def build(config, args):
    """Returns the results of configuring and compiling one folder (an empty list: not wanted)."""
    env = base_env(args)
    if config.compiler:
        if not shutil.which(config.compiler):
            return [Result("build", FAIL, "%s is not installed: run make deps" % config.compiler)]
        env["CC"] = config.compiler
    steps = [
        ["sh", os.path.join(TOP, "scripts", "configure.sh"), config.folder] + config.options,
        ["ninja", "-C", config.folder],
    ]
    said = ""
    for step in steps:
        done = subprocess.run(step, env=env, cwd=TOP, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = done.stdout.decode("utf-8", "replace")
        said += text
        if done.returncode != 0:
            return [Result("build", FAIL, tail(text[max(text.find("FAILED: "), 0):]))]
    if re.search(r"\bwarning: ", said):
        return [Result("build", FAIL, "the build is not free of warnings:\n" + tail(said))]
    return [Result("build", PASS)]


def units_of(config, args):
    """The tests that meson declared in a build folder, as far as this run wants them."""
    with open(os.path.join(config.folder, "meson-info", "intro-tests.json")) as f:
        declared = json.load(f)
    wanted = config.suites + (config.long_suites if args.long else [])
    env = base_env(args)
    units = []
    for t in declared:
        suite = t["suite"][0].split(":")[-1]
        if suite not in wanted:
            continue
        own = dict(env)
        own.update(t["env"])
        # meson's help for shared libraries; the programs find them by their own run path.
        own.pop("LD_LIBRARY_PATH", None)
        timeout = t["timeout"] * config.slowdown * (10 if args.long else 1)
        units.append(Unit(config.name, suite, t["name"], t["cmd"], own, timeout,
                          t["workdir"] or config.folder))
    return units


def undeclared(config):
    """A suite without any test has not passed. Those of --aio=async need liburing."""
    with open(os.path.join(config.folder, "meson-info", "intro-tests.json")) as f:
        declared = {t["suite"][0].split(":")[-1] for t in json.load(f)}
    return [Result(suite, SKIP, reason="liburing is not installed, or too old")
            if suite.endswith("-async") else
            Result(suite, FAIL, "no tests are declared; run make deps, then look at %s"
                   % os.path.join(config.folder, "configure.log"))
            for suite in config.suites if suite not in declared]


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


def check_tree(name, argv, args):
    """A check of the tree itself, which is one test; its output is kept even when it passes."""
    unit = Unit("tree", "check", name, argv, base_env(args), 0, TOP)
    start = time.monotonic()
    run = subprocess.run(unit.argv, env=unit.env, cwd=unit.cwd, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    unit.seconds = time.monotonic() - start
    text = run.stdout.decode("utf-8", "replace")
    if run.returncode == EXIT_SKIP:
        unit.results = [Result(name, SKIP, "", skip_reason(text.splitlines()))]
    else:
        unit.results = [Result(name, FAIL if run.returncode else PASS, text)]
    return unit


def check_rules(units, args):
    """Which rules are proved: by the tests that ran on Pollux, when all of them were to run."""
    argv = [sys.executable, "scripts/rule-coverage.py"]
    ran = [r for u in units if u.config == "plain"
           and u.suite in ("conformance-kernel", "conformance-pollux") for r in u.results]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as f:
        if ran and not args.only:
            for r in ran:
                f.write("\t".join(re.sub(r"\s+", " ", x) for x in (r.name, r.outcome, r.reason))
                        + "\n")
            f.flush()
            argv += ["--ran", f.name]
        return check_tree("rule-coverage", argv, args)


# --- telling ----------------------------------------------------------------------------------

class Progress:
    def __init__(self, total):
        self.total = total
        self.done = 0
        self.tty = sys.stdout.isatty()
        self.lock = threading.Lock()

    def say(self, unit):
        count = {o: sum(r.outcome == o for r in unit.results) for o in (PASS, FAIL, SKIP)}
        with self.lock:
            self.done += 1
            bad = count[FAIL] > 0
            if self.tty and not bad:
                sys.stdout.write("\r\033[K[%d/%d] %s" % (self.done, self.total, unit.ident))
            else:
                head = "\r\033[K" if self.tty else ""
                parts = ", ".join("%d %s" % (n, o) for o, n in count.items() if n)
                sys.stdout.write("%s[%d/%d] %s %s: %s (%.1f s)\n"
                                 % (head, self.done, self.total, "FAIL" if bad else "ok  ",
                                    unit.ident, parts, unit.seconds))
            sys.stdout.flush()

    def end(self):
        if self.tty:
            sys.stdout.write("\r\033[K")
            sys.stdout.flush()


def say(text=""):
    print(text, flush=True)


def clean_xml(text):
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def write_summary(path, units):
    root = xml.Element("testsuites")
    for u in units:
        suite = xml.SubElement(root, "testsuite", {
            "name": u.ident, "time": "%.3f" % u.seconds, "tests": str(len(u.results)),
            "failures": str(sum(r.outcome == FAIL for r in u.results)),
            "skipped": str(sum(r.outcome == SKIP for r in u.results))})
        for r in u.results:
            case = xml.SubElement(suite, "testcase", {"classname": u.ident,
                                                      "name": clean_xml(r.name)})
            if r.outcome == FAIL:
                xml.SubElement(case, "failure").text = clean_xml(r.text)
            elif r.outcome == SKIP:
                xml.SubElement(case, "skipped", {"message": clean_xml(r.reason)})
    os.makedirs(os.path.dirname(path), exist_ok=True)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def report(units):
    failed = [(u, r) for u in units for r in u.results if r.outcome == FAIL]
    skipped = {}
    for u in units:
        for r in u.results:
            if r.outcome == SKIP:
                program = u.suite.split("-")[0] + "/" + u.name
                skipped.setdefault((program, r.name, r.reason), []).append(u)
    if skipped:
        say()
        say("Skipped tests:")
        for (program, name, reason), where in sorted(skipped.items(), key=lambda x: x[0]):
            sides = ", ".join(sorted({u.config + ("/kernel" if u.suite == "conformance-kernel"
                                                  else "") for u in where}))
            say("  %s: %s [%s]: %s" % (program, name, sides, reason))
    # The failures come last: what keeps only the end of the output must keep them.
    for u, r in failed:
        say()
        say("--- failed: %s: %s" % (u.ident, r.name))
        say(r.text.rstrip("\n"))
        if u.suite not in ("check", "build"):
            say("--- run it again: scripts/run-tests.py --only '%s'" % u.ident)
    if failed:
        say()
        say("Failed tests:")
        for u, r in failed:
            say("  %s: %s" % (u.ident, r.name))
            for line in [l for l in r.text.splitlines() if l.strip()][-LINES_AT_THE_END:]:
                say("      " + line)
    return len(failed)


def allow_thread_sanitizer():
    """Older run-times of the thread sanitizer refuse the wide address randomisation of newer
    kernels; a process may turn it off for itself and its children."""
    try:
        with open("/proc/sys/vm/mmap_rnd_bits") as f:
            bits = int(f.read())
    except (OSError, ValueError):
        return
    if bits > 28:
        libc = ctypes.CDLL(None, use_errno=True)
        addr_no_randomize = 0x0040000
        current = libc.personality(0xFFFFFFFF)
        if current != -1:
            libc.personality(current | addr_no_randomize)


def main():
    parser = argparse.ArgumentParser(description="Builds Pollux and runs its test suite.")
    parser.add_argument("--jobs", type=int, default=2, metavar="N",
                        help="test programs that run at the same time (default 2)")
    parser.add_argument("--only", action="append", metavar="GLOB",
                        help="run only tests whose CONFIG/SUITE/NAME matches; may be repeated")
    parser.add_argument("--config", action="append", choices=[c.name for c in CONFIGS],
                        help="build and run only in these configurations; may be repeated")
    parser.add_argument("--built", metavar="FOLDER",
                        help="build nothing: run what another machine has built in this folder")
    parser.add_argument("--cannot", metavar="FILE",
                        help="with --built: a table of tests that fail where they run, and why")
    parser.add_argument("--slowdown", type=float, default=1, metavar="N",
                        help="with --built: tests may take N times as long (default 1)")
    parser.add_argument("--long", action="store_true", help="the long forms of the tests")
    parser.add_argument("--list", action="store_true",
                        help="name the test programs of the folders that are built, run nothing")
    args = parser.parse_args()

    os.chdir(TOP)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    allow_thread_sanitizer()
    configs = [c for c in CONFIGS if not args.config or c.name in args.config]
    if args.built:
        name = os.path.basename(os.path.abspath(args.built))
        configs = [Config(name, args.built, None, [], BUILT, [], args.slowdown)]
        args.config = [name]
    if args.only and not args.config:
        # A pattern that names a configuration wants only that one built.
        named = [c for c in configs if any(g.startswith(c.name + "/") for g in args.only)]
        if len(named) and all(g.split("/")[0] in [c.name for c in CONFIGS] + ["tree"]
                              for g in args.only):
            configs = named

    if args.list:
        for c in configs:
            if os.path.exists(os.path.join(c.folder, "meson-info", "intro-tests.json")):
                for u in units_of(c, args):
                    if matches(u.ident, args.only):
                        say(u.ident)
        return 0

    units, pending = [], []
    for name in "format", "cross":
        if not args.config and matches("tree/check/" + name, args.only):
            unit = check_tree(name, ["sh", "scripts/%s-check.sh" % name], args)
            units.append(unit)
            say("%s: %s" % (unit.ident, unit.results[0].outcome))

    only_tree = args.only and all(g.startswith("tree/") for g in args.only)
    for config in [] if only_tree else configs:
        unit = Unit(config.name, "build", os.path.basename(config.folder), [], {}, 0, TOP)
        if args.only and not config.suites and not args.long and not matches(unit.ident, args.only):
            continue
        if args.built:
            pending += [u for u in units_of(config, args) if matches(u.ident, args.only)]
            continue
        say("building %s ..." % unit.name)
        start = time.monotonic()
        unit.results = build(config, args)
        unit.seconds = time.monotonic() - start
        bad = unit.results[0].outcome == FAIL
        if not bad and not args.only:
            unit.results += undeclared(config)
        if bad or matches(unit.ident, args.only):
            units.append(unit)
        say("%s: %s (%.0f s)" % (unit.ident, unit.results[0].outcome, unit.seconds))
        if not bad:
            pending += [u for u in units_of(config, args) if matches(u.ident, args.only)]

    # The longest first, so that the last job does not run alone.
    pending.sort(key=lambda u: (u.suite not in ("model", "torture", "programs"), u.config == "plain"))
    progress = Progress(len(pending))
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, args.jobs)) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run_unit, u) for u in pending]):
            progress.say(done.result())
    progress.end()
    units += pending
    if args.cannot:
        excuse(units, args.cannot)

    if not args.config and matches("tree/check/rule-coverage", args.only):
        unit = check_rules(units, args)
        units.append(unit)
        if unit.results[0].outcome == PASS:
            say()
            say(unit.results[0].text.rstrip("\n"))
    if not units:
        say("no test matches")
        return 2
    failures = report(units)
    write_summary(os.path.join(TOP, "build", "test-summary.xml"), units)
    say()
    totals = {o: sum(r.outcome == o for u in units for r in u.results) for o in (PASS, FAIL, SKIP)}
    say("%d passed, %d failed, %d skipped" % (totals[PASS], totals[FAIL], totals[SKIP]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
