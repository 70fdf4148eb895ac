# SPDX-License-Identifier: MIT
"""What the tests of programs share: TAP, packages, starting and stopping, proof and comparison.

A test runs the same scenario twice, plain and under Pollux, and compares what came out.  Whatever
it starts descends from it, also a daemon that has left its session, and nothing else is ever sent
a signal.
"""

import atexit
import contextlib
import ctypes
import fcntl
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PR_SET_CHILD_SUBREAPER = 36
SKIP = 77

LONG = os.environ.get("POLLUX_TEST_LONG") == "1"
# Less than what scripts/run-tests.py allows, so that a test that hangs can still clear up.
LIMIT = int(os.environ.get("POLLUX_TEST_LIMIT", "1500" if LONG else "320"))


class TooLong(Exception):
    pass


class Failed(Exception):
    """The scenario cannot go on; the reason has been reported."""


class OwnPopen(subprocess.Popen):
    """Knows which children are our own. The others have been left to us by their parents."""

    lock = threading.Lock()
    pids = set()

    def __init__(self, *args, **more):
        with self.lock:
            super().__init__(*args, **more)
            self.pids.add(self.pid)


subprocess.Popen = OwnPopen


def bury_orphans():
    """Waits for the dead among those that were left to us: some programs leave thousands."""
    while True:
        time.sleep(0.2)
        with OwnPopen.lock:
            for pid in read_text("/proc/self/task/%d/children" % os.getpid()).split():
                if int(pid) not in OwnPopen.pids:
                    try:
                        os.waitpid(int(pid), os.WNOHANG)
                    except ChildProcessError:
                        pass


def descendants(pid):
    """The processes that descend from pid, children before grandchildren."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    fields = f.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents.setdefault(int(fields[1]), []).append(int(name))
    found, look = [], [pid]
    while look:
        mine = parents.get(look.pop(0), [])
        found += mine
        look += mine
    return found


def maps(pid, text):
    try:
        with open("/proc/%d/maps" % pid) as f:
            return text in f.read()
    except OSError:
        return False


def wait_for(condition, seconds, step=0.02):
    """Waits until condition() is true and returns what it said; None if it never was."""
    end = time.monotonic() + seconds
    while True:
        said = condition()
        if said:
            return said
        if time.monotonic() > end:
            return None
        time.sleep(step)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def untimed():
    """Packages that are fetched and built, and waiting for others that do so, are no time of the
    test."""
    left = signal.alarm(0)
    try:
        yield
    finally:
        signal.alarm(left)


def takes(pid, number, seconds=60):
    """Waits until the process catches a signal and does not block it. One that comes earlier may
    end a program or be lost: what is pending is discarded when the signal is set to be ignored,
    which some do before they install their handler."""
    def ready():
        masks = signal_masks("/proc/%d/" % pid)
        return masks.get("SigCgt", 0) & ~masks.get("SigBlk", 0) & 1 << number - 1

    return bool(wait_for(ready, seconds))


def signal_masks(where):
    return {name: int(mask, 16) for name, mask in
            re.findall(r"^(Sig(?:Pnd|Blk|Ign|Cgt)|ShdPnd):\s*(\w+)", read_text(where + "status"),
                       re.M)}


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def read_text(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


class Side:
    """Where a scenario runs: on the plain kernel or under Pollux."""

    def __init__(self, test, name, options=()):
        self.test = test
        self.name = name
        self.pollux = name != "plain"
        self.options = list(options)
        self.statistics = True
        self.dir = tempfile.mkdtemp(prefix=name + ".", dir=test.scratch)
        self.started = []

    def command(self, argv):
        if not self.pollux:
            return list(argv)
        stats = ["--stats"] if self.statistics else []
        return [self.test.pollux, "run"] + stats + self.options + ["--"] + list(argv)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def start(self, argv, label=None, prove=True, stdin=subprocess.DEVNULL, **more):
        """Starts a program; with prove it has to come up with the drop-in mapped, or without."""
        label = label or os.path.basename(argv[0])
        p = Program(self, label, argv, stdin, more)
        self.started.append(p)
        if prove:
            self.prove(p.pid, label, p)
        return p

    def run(self, argv, label=None, timeout=60, **more):
        """Runs a program to its end."""
        p = self.start(argv, label, prove=False, **more)
        p.wait(timeout)
        return p

    def prove(self, pid, label, program=None):
        """The very process has the drop-in mapped; plain it has not."""
        exe = "/proc/%d/exe" % pid

        def there():
            # The command itself becomes the program, whose loader has its own time.
            try:
                return os.readlink(exe) != self.test.pollux and maps(pid, self.test.dropin)
            except OSError:
                return True

        if self.pollux:
            wait_for(there, 20)
        good = os.path.exists(exe) and maps(pid, self.test.dropin) == self.pollux
        self.test.check(good, "%s: %s %s the drop-in mapped"
                        % (self.name, label, "has" if self.pollux else "has not"),
                        program.said() if program else "")
        if not good:
            raise Failed()

    def check(self, good, name, detail=""):
        return self.test.check(good, "%s: %s" % (self.name, name), detail)

    def require(self, good, name, detail=""):
        if not self.check(good, name, detail):
            raise Failed()


class Program:
    def __init__(self, side, label, argv, stdin, more):
        number = len(side.started)
        base = side.path("%02d-%s" % (number, re.sub(r"\W", "-", label)))
        self.side, self.label = side, label
        self.out, self.err = base + ".out", base + ".err"
        env = dict(os.environ)
        env.update(more.pop("env", {}))
        self.began = time.monotonic()
        self.at = ""
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.popen = subprocess.Popen(side.command(argv), stdin=stdin, stdout=out, stderr=err,
                                          env=env, cwd=more.pop("cwd", side.dir), **more)
        self.pid = self.popen.pid
        self.seconds = 0.0
        self.hung = False

    @property
    def status(self):
        return self.popen.returncode

    @property
    def text(self):
        return read_text(self.out)

    def said(self):
        """What there is to know about it: how it ended, and what it wrote."""
        if self.hung:
            end = "did not end and was killed after %.1f s" % self.seconds
        elif self.status is None:
            end = "has been running for %.1f s" % (time.monotonic() - self.began)
        else:
            end = "status %s after %.1f s" % (self.status, self.seconds)
        return ("%s (%d): %s\n" % (self.label, self.pid, end)
                + "".join("| %s\n" % l for l in
                          (read_text(self.out)[-3000:] + read_text(self.err)[-5000:]).splitlines()))

    def wait(self, timeout=30):
        """The exit status, or None if the program did not end in time; it is killed then."""
        try:
            status = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        self.seconds = time.monotonic() - self.began
        if status is None:
            self.hung = True
            self.describe_hang()
            self.popen.kill()
            self.popen.wait()
        return status

    def describe_hang(self):
        for pid in [self.pid] + descendants(self.pid):
            try:
                tasks = os.listdir("/proc/%d/task" % pid)
            except OSError:
                continue
            for tid in tasks:
                where = "/proc/%d/task/%s/" % (pid, tid)
                state = re.search(r"State:\s*(\S+)", read_text(where + "status"))
                print("# hang: %s %d/%s %s %s %s %s" % (
                    self.label, pid, tid, read_text(where + "comm").strip(),
                    state.group(1) if state else "?", read_text(where + "syscall").strip(),
                    " ".join("%s:%x" % m for m in signal_masks(where).items() if m[1])))
        sys.stdout.flush()

    def send(self, number):
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    def stop(self, number=signal.SIGTERM, timeout=30):
        self.send(number)
        return self.wait(timeout)

    def alive(self):
        return self.popen.poll() is None

    def adopted(self, kind):
        """How many objects of a kind its processes served, by the statistics at their ends."""
        total = 0
        for line in re.findall(r"^pollux: adopted: (.*)$", read_text(self.err), re.M):
            for number, what in re.findall(r"(\d+) (\w+)", line.split(";")[0]):
                if what == kind:
                    total += int(number)
        return total

    def contexts(self):
        """How many AIO contexts its processes made, by the statistics at their ends."""
        return sum(int(n) for n in re.findall(r"^pollux: AIO contexts (\d+)",
                                              read_text(self.err), re.M))


class Test:
    def __init__(self):
        if len(sys.argv) != 2:
            sys.exit("usage: %s POLLUX" % sys.argv[0])
        self.pollux = os.path.realpath(sys.argv[1])
        self.dropin = os.path.join(os.path.dirname(self.pollux), "libpollux-preload.so")
        self.count = self.failures = 0
        self.main_thread = threading.get_ident()
        self.lock = threading.Lock()
        self.locks = []
        for name in list(os.environ):
            if name == "LD_PRELOAD" or name.startswith("POLLUX_") and \
                    not name.startswith(("POLLUX_DELAY", "POLLUX_INJECT", "POLLUX_TEST")):
                del os.environ[name]
        os.environ["LC_ALL"] = "C"
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        # What leaves its parent, as a daemon does, becomes our child and is found at the end.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        threading.Thread(target=bury_orphans, daemon=True).start()
        self.scratch = tempfile.mkdtemp(prefix="pollux-programs.")
        atexit.register(self.clear_up)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda n, _: sys.exit(1))
        signal.signal(signal.SIGALRM, self.too_long)
        signal.alarm(LIMIT)

    def too_long(self, *_):
        raise TooLong()

    def clear_up(self):
        signal.alarm(0)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            left = descendants(os.getpid())
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            time.sleep(0.01)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def check(self, good, name, detail=""):
        with self.lock:
            self.count += 1
            if not good:
                self.failures += 1
                for line in str(detail).splitlines():
                    print("# " + line)
            print("%s %d - %s" % ("ok" if good else "not ok", self.count, name))
            sys.stdout.flush()
        return bool(good)

    def skip(self, name, why):
        self.count += 1
        print("ok %d - %s # SKIP %s" % (self.count, name, why))
        sys.stdout.flush()

    def note(self, text):
        print("# " + text)
        sys.stdout.flush()

    def need(self, *programs):
        """Has programs of the list in scripts/install-deps.sh installed, or skips the test."""
        for program in programs:
            why = self.cannot_have(program)
            if why:
                print("skip: %s cannot be had here: %s" % (program, why))
                sys.exit(SKIP)

    def cannot_have(self, program):
        with untimed():
            got = subprocess.run(["sh", os.path.join(TOP, "scripts", "install-deps.sh"), "programs",
                                  program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        if got.returncode == 0:
            return None
        return (got.stdout.strip().splitlines() or ["no reason given"])[-1]

    def source(self, package, alone=False):
        """The folder of a Debian source package, fetched once into the build folder; or why not.

        apt is asked by way of its own settings, with the lists of sources taken from the
        system's; nothing of the system is changed. alone: until this test ends, no other has the
        folder, for what builds in it and suites that use fixed ports.
        """
        why = self.cannot_have("dpkg-source") or self.cannot_have("cmake")
        if why:
            return None, why
        # By the one name that it always has: cmake remembers where it has been.
        programs = os.path.realpath(os.path.join(os.path.dirname(self.pollux), "programs"))
        top = os.path.join(programs, package)
        unpacked = os.path.join(top, "unpacked")
        os.makedirs(os.path.dirname(top), exist_ok=True)
        lock = open(top + ".lock", "w")
        with untimed():
            fcntl.flock(lock, fcntl.LOCK_EX)
        if alone:
            self.locks.append(lock)
        try:
            with untimed():
                return self.fetch(package, top, unpacked)
        finally:
            if not alone:
                lock.close()

    def fetch(self, package, top, unpacked):
        if os.path.exists(os.path.join(top, "complete")):
            return unpacked, None
        shutil.rmtree(top, ignore_errors=True)
        for name in "parts", "lists/partial", "cache/archives/partial":
            os.makedirs(os.path.join(top, name))
        for path in ["/etc/apt/sources.list"] + glob.glob("/etc/apt/sources.list.d/*"):
            text = read_text(path)
            text = re.sub(r"^(\s*)deb\s", r"\1deb-src ", text, flags=re.M)
            text = re.sub(r"^Types:.*", "Types: deb-src", text, flags=re.M)
            if path.endswith((".list", ".sources")) and "debian" in text:
                with open(os.path.join(top, "parts", os.path.basename(path)), "w") as f:
                    f.write(text)
        options = ["-o", "Dir::Etc::SourceList=/dev/null",
                   "-o", "Dir::Etc::SourceParts=" + os.path.join(top, "parts"),
                   "-o", "Dir::State::Lists=" + os.path.join(top, "lists"),
                   "-o", "Dir::Cache=" + os.path.join(top, "cache")]
        for argv in (["update"], ["source", "--download-only", package]):
            got = subprocess.run(["apt-get"] + options + argv, cwd=top, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        described = glob.glob(os.path.join(top, "*.dsc"))
        if not described:
            return None, "no source package: " + (got.stdout.splitlines() or ["nothing said"])[-1]
        got = subprocess.run(["dpkg-source", "-x", described[0], unpacked], cwd=top,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        if got.returncode:
            return None, "dpkg-source: " + got.stdout.splitlines()[-1]
        open(os.path.join(top, "complete"), "w").close()
        return unpacked, None

    def build(self, folder, targets, options):
        """Builds with cmake below the sources; the folder of the build, or None."""
        where = os.path.join(folder, "pollux-build")
        for argv in (["cmake", "-S", folder, "-B", where, "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
                     + options, ["cmake", "--build", where, "-j2", "--target"] + targets):
            with untimed():
                got = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True)
            if got.returncode:
                self.check(False, "%s is built" % os.path.basename(os.path.dirname(folder)),
                           got.stdout[-5000:])
                return None
        return where

    def compare_suites(self, run, again):
        """Compares a program's own tests: run(side) gives {name: "ok", ...} for all of them.

        A test may fail by chance, with or without Pollux; what fails under Pollux and not plain is
        run again by again(side, name), and is an error unless it passes most of the time, or
        fails plain, too.
        """
        pair = self.both(run)
        if not pair:
            return
        plain, pollux = pair
        self.check(len(plain) > 20 and set(plain) == set(pollux), "the same tests ran",
                   "only plain: %s\nonly pollux: %s" % (sorted(set(plain) - set(pollux)),
                                                        sorted(set(pollux) - set(plain))))
        for name in plain:
            if plain[name] != "ok" or pollux.get(name) == "ok":
                self.check(True, "%s: plain %s, pollux %s"
                           % (name, plain[name], pollux.get(name, "missing")))
                continue
            counts = self.both(lambda side: [again(side, name) for _ in range(5)])
            good = counts and (counts[1].count("ok") >= 4
                               or counts[1].count("ok") >= counts[0].count("ok"))
            self.check(good, "%s: plain ok, pollux %s; again: %s"
                       % (name, pollux.get(name, "missing"), counts))

    def compare(self, name, plain, pollux):
        if not self.check(plain == pollux, "the same " + name,
                          "plain:  %s\npollux: %s" % (short(plain), short(pollux))):
            return False
        return True

    def compare_rates(self, plain, pollux, again, least=0.25):
        """Compares rates by name: one that falls far says that wakes got lost and time-outs took
        their place.

        On a busy machine the same program is several times as slow from one second to the next.
        So what looks slow is run again, by again(side), and is slow only if it stays so: the
        best of Pollux against the worst of plain.  There is time of its own for that, however long
        the first runs took, or nothing would be run again where it is needed most.
        """
        plain, pollux = dict(plain), dict(pollux)

        def slow():
            return [n for n in plain if not plain[n] or pollux.get(n, 0) < plain[n] * least]

        tries, began = 3, time.monotonic()
        if slow():
            signal.alarm(LIMIT)
        while slow() and tries and time.monotonic() - began < LIMIT / 2:
            tries -= 1
            for n in slow():
                self.note("%s: plain %.0f/s, pollux %.0f/s: once more"
                          % (n, plain[n], pollux.get(n, 0)))
            pair = self.both(again)
            if not pair:
                break
            for n in plain:
                plain[n] = min(plain[n], pair[0].get(n, 0)) if plain[n] else pair[0].get(n, 0)
                pollux[n] = max(pollux.get(n, 0), pair[1].get(n, 0))
        for n in plain:
            text = "%s: plain %.0f/s, pollux %.0f/s, ratio %.2f" % (
                n, plain[n], pollux.get(n, 0), pollux.get(n, 0) / plain[n] if plain[n] else 0)
            self.note(text)
            self.check(n not in slow(), "the rate of " + n, text)

    def both(self, scenario, **options):
        """Runs scenario(side) on both sides; the pair of its results, or None if one gave up."""
        results = []
        for name in ("plain", "pollux"):
            side = Side(self, name, options.get("options", ()))
            self.at = name + ": "
            try:
                results.append(scenario(side))
            except Failed:
                return None
            except TooLong:
                for p in side.started:
                    if p.alive():
                        p.describe_hang()
                        self.note(p.said().rstrip("\n").replace("\n", "\n# "))
                raise
            except (OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError):
                # A result like any other, with its traceback.
                self.check(False, name + ": the scenario runs to its end",
                           traceback.format_exc())
                return None
            finally:
                for p in side.started:
                    if p.alive():
                        p.popen.kill()
                        p.popen.wait()
        return results

    def main(self, body):
        try:
            body(self)
        except TooLong:
            for pid in descendants(os.getpid()):
                self.note("still there: %d %s" % (pid, read_text("/proc/%d/cmdline" % pid)
                                                  .replace("\0", " ")))
            self.check(False, "%sthe test ends within %d seconds" % (self.at, LIMIT))
        except Failed:
            pass
        except Exception:
            self.check(False, "the test runs to its end", traceback.format_exc())
        if not self.count:
            self.check(False, "the test tests anything")
        print("1..%d" % self.count)
        sys.stdout.flush()
        sys.exit(1 if self.failures else 0)


def short(value):
    text = value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)
    return text if len(text) < 2000 else text[:2000] + "..."


def main(body):
    Test().main(body)
