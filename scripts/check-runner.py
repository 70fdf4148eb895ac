#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows that scripts/run-tests.py loses no failure, and runs beside each other what it should."""

import sys
import threading
import time
import unittest

from suite import schedule
from suite.outcome import FAIL, PASS, SKIP, TOP, Unit
from suite.verdict import judge

CMOCKA = """[==========] group: Running 2 test(s).
[ RUN      ] one
%s
[ RUN      ] two
[       OK ] two
[==========] group: 2 test(s) run.
[  PASSED  ] 2 test(s).
"""


def unit(suite="torture", argv=(), timeout=60):
    return Unit("plain", suite, "name", list(argv), None, timeout, TOP)


def outcomes(suite, status, text, timed_out=False):
    return [(r.name, r.outcome) for r in judge(unit(suite), status, timed_out, text)]


class Verdict(unittest.TestCase):
    PROGRAM = ("(the program)", FAIL)

    def test_cmocka(self):
        good = CMOCKA % "[       OK ] one"
        both = [("one", PASS), ("two", PASS)]
        self.assertEqual(outcomes("torture", 0, good), both)
        self.assertEqual(outcomes("torture", 1, good), both + [self.PROGRAM])
        self.assertEqual(outcomes("torture", -11, good), both + [self.PROGRAM])
        self.assertEqual(outcomes("torture", -9, good, timed_out=True), both + [self.PROGRAM])
        self.assertEqual(outcomes("torture", 1, CMOCKA % "[  FAILED  ] one"),
                         [("one", FAIL), ("two", PASS)])
        self.assertEqual(outcomes("torture", 0, CMOCKA % "[  SKIPPED ] one"),
                         [("one", SKIP), ("two", PASS)])

    def test_what_fails_and_is_listed_as_passed_has_failed(self):
        text = CMOCKA % "[  FAILED  ] one\n[       OK ] one"
        self.assertIn(("one", FAIL), outcomes("torture", 0, text))

    def test_ended_within_a_test(self):
        text = CMOCKA[:CMOCKA.index("%s")]
        for status in 0, 1, -11:
            self.assertEqual(outcomes("torture", status, text), [("one", FAIL)])

    def test_ended_between_tests(self):
        text = (CMOCKA % "[       OK ] one").split("[ RUN      ] two")[0]
        self.assertEqual(outcomes("torture", 0, text), [("one", PASS), ("(all tests)", FAIL)])

    def test_tap(self):
        self.assertEqual(outcomes("cli", 0, "ok 1 - a\nok 2 - b # SKIP why\n1..2\n"),
                         [("a", PASS), ("b", SKIP)])
        self.assertEqual(outcomes("cli", 0, "ok 1 - a\nnot ok 2 - b\n1..2\n"),
                         [("a", PASS), ("b", FAIL)])
        self.assertEqual(outcomes("cli", 0, "1..3\nok 1 - a\nok 2 - b\n"),
                         [("a", PASS), ("b", PASS), ("(all tests)", FAIL)])
        self.assertEqual(outcomes("cli", 3, "ok 1 - a\n"), [("a", PASS), self.PROGRAM])

    def test_nothing(self):
        self.assertEqual(outcomes("torture", 0, ""), [self.PROGRAM])
        self.assertEqual(outcomes("cli", 0, "hello\n"), [self.PROGRAM])
        self.assertEqual(outcomes("cli", None, "cannot be found"), [self.PROGRAM])
        self.assertEqual(outcomes("cli", 77, "skipped: no tool\n"), [("name", SKIP)])
        self.assertEqual(outcomes("cli", 77, "not ok 1 - a\n"), [("a", FAIL)])

    def test_by_status(self):
        self.assertEqual(outcomes("examples", 0, "not ok"), [("name", PASS)])
        self.assertEqual(outcomes("examples", 1, ""), [self.PROGRAM])
        self.assertEqual(outcomes("check", 1, "bad"), [self.PROGRAM])
        self.assertEqual(outcomes("check", 77, "skip: no tool"), [("name", SKIP)])

    def test_a_sanitizer_that_reports_in_a_child(self):
        text = "WARNING: ThreadSanitizer: data race (pid=1)\n"
        for suite in "torture", "examples":
            self.assertIn(self.PROGRAM, outcomes(suite, 0, text + CMOCKA % "[       OK ] one"))


class Programs(unittest.TestCase):
    def run_program(self, program, timeout=60):
        u = unit("cli", [sys.executable, "-c", program], timeout)
        schedule.run_unit(u, schedule.Watch(share=lambda: 1))
        return u

    def test_ends(self):
        self.assertFalse(self.run_program("print('ok 1 - a')").failed)
        self.assertTrue(self.run_program("print('ok 1 - a'); exit(1)").failed)
        self.assertTrue(self.run_program("import os; os.abort()").failed)

    def test_hangs(self):
        u = self.run_program("print('ok 1 - a', flush=True); import time; time.sleep(1000)", 0.1)
        self.assertIn("did not end", u.results[-1].text)
        self.assertEqual([r.outcome for r in u.results], [PASS, FAIL])

    def test_leaves_a_child(self):
        """It has the output open, and is ended."""
        u = self.run_program("import subprocess; print('ok 1 - a', flush=True);"
                             "subprocess.Popen(['sleep', '1000'])")
        self.assertFalse(u.failed)
        self.assertLess(u.seconds, 900)

    def test_is_not_there(self):
        u = unit("cli", ["/nonexistent/program"])
        schedule.run_unit(u, schedule.Watch())
        self.assertTrue(u.failed)


class Schedule(unittest.TestCase):
    def test_sleepers_run_together(self):
        together = threading.Barrier(8)
        schedule.run_tasks([schedule.Task(lambda: together.wait(60) and None, weight=0.05)
                            for _ in range(8)], 2)

    def test_what_computes_has_a_cpu(self):
        lock, now, most = threading.Lock(), [], []

        def compute():
            with lock:
                now.append(1)
                most.append(len(now))
            time.sleep(0.01)
            with lock:
                now.pop()

        schedule.run_tasks([schedule.Task(compute) for _ in range(20)], 2)
        self.assertEqual((len(most), max(most)), (20, 2))

    def test_nothing_runs_beside_what_runs_alone(self):
        running, seen = [], []

        def work(alone):
            running.append(alone)
            time.sleep(0.02)
            seen.append(alone and len(running) > 1 or not alone and True in running)
            running.remove(alone)

        alone = unit()
        alone.alone = True
        schedule.weigh(alone, {}, 2)
        schedule.run_tasks([schedule.Task(lambda: work(False), weight=0.05) for _ in range(20)]
                           + [schedule.Task(lambda: work(True), alone.weight) for _ in range(3)], 2)
        self.assertEqual(len(seen), 23)
        self.assertFalse(any(seen))

    def test_tasks_that_come_of_tasks(self):
        done = []
        last = schedule.Task(lambda: done.append(2))
        schedule.run_tasks([schedule.Task(lambda: done.append(1) or [last])], 2)
        self.assertEqual(done, [1, 2])

    def test_an_error_is_not_lost(self):
        with self.assertRaises(ZeroDivisionError):
            schedule.run_tasks([schedule.Task(lambda: 1 / 0)], 2)


if __name__ == "__main__":
    unittest.main()
