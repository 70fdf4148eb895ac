# SPDX-License-Identifier: MIT
"""Processes that do nothing but want a CPU."""

import ctypes
import signal
import subprocess


def start(n):
    """Each in a session of its own: where sessions share the CPUs, they would be one. None outlives
    the thread that starts them, whatever ends it."""
    libc = ctypes.CDLL(None)
    pr_set_pdeathsig = 1

    def die_with_parent():
        libc.prctl(pr_set_pdeathsig, signal.SIGKILL)

    return [subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True,
                             preexec_fn=die_with_parent)
            for _ in range(n)]


def end(processes):
    for p in processes:
        p.kill()
    for p in processes:
        p.wait()
