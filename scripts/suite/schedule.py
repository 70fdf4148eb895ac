# SPDX-License-Identifier: MIT
"""Runs units beside each other.

What a unit takes of the machine is known from a former run (tests/costs.tsv): CPU seconds and
seconds.  Their ratio is its weight, the number of CPUs that it keeps busy.  The units that run have a
sum of weights of about the number of CPUs, so those that sleep run many at a time, and those that
compute run alone on a CPU.  A unit that the table does not name is short, and most of those sleep.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time

from .outcome import TOP
from .verdict import judge

OUTPUT_READ = 16 << 20
COSTS = os.path.join(TOP, "tests", "costs.tsv")
# The CPUs of a unit that the table does not name. Of 108 the average was 0.2, on a busy machine.
UNNAMED = 0.5
# A unit of the table, once it runs beside others, may take this much more than the CPUs that are left.
OVER = 0.4
# No more of them for each CPU, however little they do: each has memory, too.
SLEEPERS = 4
# A time-out counts seconds in which a thread that wants to run has a CPU. This is the least of a
# second that a second counts, so that on the busiest machine, too, what hangs is ended.
LEAST_SHARE = 1 / 64


def read_costs(path=COSTS):
    """{ident: (CPU seconds, seconds)}"""
    costs = {}
    try:
        with open(path, encoding="utf-8") as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    ident, cpu, seconds = line.rstrip("\n").split("\t")
                    costs[ident] = float(cpu), float(seconds)
    except FileNotFoundError:
        pass
    return costs


def write_costs(units, path=COSTS):
    """Puts what has been measured into the table. Short ones need no place in it."""
    costs = read_costs(path)
    with open(path, encoding="utf-8") as f:
        head = [line for line in f if line.startswith("#")]
    for u in units:
        costs.pop(u.ident, None)
        if u.seconds >= 1 and u.argv and not u.failed:
            costs[u.ident] = u.cpu, u.seconds
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(head)
        for ident in sorted(costs):
            f.write("%s\t%.1f\t%.1f\n" % ((ident,) + costs[ident]))


def weigh(unit, costs, cpus):
    unit.weight = UNNAMED
    if unit.ident in costs:
        cpu, seconds = costs[unit.ident]
        unit.weight = min(max(cpu / max(seconds, 0.1), 0.05), cpus)
        unit.expected = seconds
    if unit.alone:
        unit.weight = float("inf")


def share_of_a_cpu():
    """What a thread that wants to run has of a CPU just now."""
    try:
        with open("/proc/stat", encoding="ascii") as f:
            for line in f:
                if line.startswith("procs_running "):
                    # The one that reads this is none of them.
                    others = max(int(line.split()[1]) - 1, 1)
                    return min(max((os.cpu_count() or 1) / others, LEAST_SHARE), 1)
    except (OSError, ValueError):
        pass
    return 1


class Process:
    """A unit's program while it runs."""

    def __init__(self, unit, pid):
        self.unit = unit
        self.pid = pid
        self.spent = 0.0
        self.ended = False
        self.timed_out = False


class Watch:
    """Ends programs that outlive their time."""

    TICK = 0.5

    def __init__(self, share=share_of_a_cpu):
        self.lock = threading.Lock()
        self.processes = set()
        self.share = share
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        before = time.monotonic()
        while True:
            time.sleep(self.TICK)
            now = time.monotonic()
            passed, before = (now - before) * self.share(), now
            with self.lock:
                for p in self.processes:
                    p.spent += passed
                    if not p.ended and p.unit.timeout and p.spent > p.unit.timeout:
                        p.timed_out = True
                        kill_group(p.pid)

    def add(self, process):
        with self.lock:
            self.processes.add(process)

    def ended(self, process):
        """To be called before its number is given back."""
        with self.lock:
            process.ended = True
            self.processes.discard(process)

    def end_all(self):
        with self.lock:
            for p in self.processes:
                kill_group(p.pid)


def kill_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run_unit(unit, watch):
    start = time.monotonic()
    # A file and not a pipe takes the output: a grandchild that outlives the test would keep a
    # pipe open.
    with tempfile.TemporaryFile() as out:
        try:
            proc = subprocess.Popen(unit.argv, env=unit.env, cwd=unit.cwd, stdout=out,
                                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                    start_new_session=True)
        except OSError as e:
            unit.results = judge(unit, None, False, "%s: %s" % (unit.argv[0], e.strerror))
            return
        process = Process(unit, proc.pid)
        watch.add(process)
        os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOWAIT)
        watch.ended(process)
        kill_group(proc.pid)
        _, status, used = os.wait4(proc.pid, 0)
        proc.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read(OUTPUT_READ).decode("utf-8", "replace")
    unit.seconds = time.monotonic() - start
    unit.cpu = used.ru_utime + used.ru_stime
    unit.results = judge(unit, proc.returncode, process.timed_out, text)


class Task:
    """Something to do that takes `weight` CPUs; `work` may return further tasks."""

    def __init__(self, work, weight=1.0, expected=1.0):
        self.work = work
        self.weight = weight
        self.expected = expected


def run_tasks(tasks, cpus):
    """Runs the tasks and those that they return. Those that last longest come first."""
    lock = threading.Condition()
    pending, errors = list(tasks), []
    running = {}

    def fits(task):
        load = sum(t.weight for t in running)
        return not running or (load + task.weight <= cpus + OVER
                               and len(running) < SLEEPERS * cpus)

    def do(task):
        more = []
        try:
            more = task.work() or []
        except BaseException as e:
            errors.append(e)
        with lock:
            del running[task]
            pending.extend(more)
            lock.notify()

    with lock:
        while (pending or running) and not errors:
            pending.sort(key=lambda t: -t.expected)
            task = next((t for t in pending if fits(t)), None)
            if task is None:
                lock.wait()
                continue
            pending.remove(task)
            running[task] = threading.Thread(target=do, args=(task,), daemon=True)
            running[task].start()
    if errors:
        raise errors[0]
