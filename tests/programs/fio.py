#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""fio with ioengine=libaio writes, reads back and verifies: block sizes, depths, reaping by itself,
vectors where it has them, buffered and O_DIRECT, and 512 threads with a context each.

fio draws its offsets from a fixed seed, so both sides must do the same number of requests and
bytes of each kind."""

import json
import os
import re
import subprocess

import harness

BASE = ["--ioengine=libaio", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1",
        "--randrepeat=1", "--output-format=json", "--fallocate=none", "--eta=never"]

# Name, and what makes it different. Every value of each setting occurs; the long form crosses them.
SHORT = {
    "1k, depth 1": "bs=1k iodepth=1 size=1m",
    "4k, depth 16, own reaping": "bs=4k iodepth=16 size=4m userspace_reap=1",
    "512 to 64k, depth 32": "bsrange=512-64k iodepth=32 size=4m",
    "4k, depth 128, own reaping": "bs=4k iodepth=128 size=8m userspace_reap=1",
    "64k, depth 64, in batches": "bs=64k iodepth=64 size=16m iodepth_batch=16 "
                                 "iodepth_batch_complete_min=8 iodepth_batch_complete_max=32",
    "4k, depth 32, direct": "bs=4k iodepth=32 size=4m direct=1",
    "64k, depth 128, direct, own reaping": "bs=64k iodepth=128 size=16m direct=1 userspace_reap=1",
    "4k, depth 8, with fsync": "bs=4k iodepth=8 size=1m fsync=32",
    "4k, depth 16, 4 processes": "bs=4k iodepth=16 size=1m numjobs=4",
    "1k, depth 4, 8 threads": "bs=1k iodepth=4 size=256k numjobs=8 thread userspace_reap=1",
}
VECTORED = "libaio_vectored"
THREADS = "rw=randrw bs=1k iodepth=1 size=64k numjobs=512 thread"


def crossed():
    for bs in ("512", "4k", "1m"):
        for depth in (1, 2, 16, 128):
            for direct in (0, 1):
                for reap in (0, 1):
                    if direct and bs == "512":
                        continue
                    yield ("%s, depth %d, direct %d, reap %d" % (bs, depth, direct, reap),
                           "bs=%s iodepth=%d direct=%d userspace_reap=%d size=%s"
                           % (bs, depth, direct, reap, "16m" if bs == "1m" else "2m"))


def jobs_of(settings):
    found = re.search(r"numjobs=(\d+)", settings)
    return int(found.group(1)) if found else 1


def run(side, name, settings, folder, timeout=120):
    argv = ["fio", "--name=job", "--directory=" + folder] + BASE
    options = settings.split()
    if not any(o.startswith("rw=") for o in options):
        argv.append("--rw=randwrite")
    p = side.start(argv + ["--" + o for o in options], label=name)
    status = p.wait(timeout)
    for left in os.listdir(folder):
        os.unlink(os.path.join(folder, left))
    side.check(status == 0, "%s: status 0" % name, p.said())
    try:
        jobs = json.loads(p.text[p.text.index("{"):])["jobs"]
    except ValueError:
        side.check(False, "%s: fio says what it did" % name, p.said())
        return None
    side.check(len(jobs) == jobs_of(settings) and not any(j["error"] for j in jobs),
               "%s: no job has an error" % name, p.said())
    side.check("verify:" not in harness.read_text(p.err), "%s: nothing differs" % name, p.said())
    if side.pollux:
        side.check(p.contexts() >= jobs_of(settings), "%s: its contexts were in process" % name,
                   p.said())
    return [sum(j[kind][what] for j in jobs)
            for kind in ("read", "write") for what in ("total_ios", "io_bytes")]


def body(test):
    test.need("fio")
    cases = list(SHORT.items()) + (list(crossed()) if harness.LONG else [])
    offered = subprocess.run(["fio", "--enghelp=libaio"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True).stdout
    # The engine of older versions submits single buffers only.
    if VECTORED in offered:
        cases += [(name + ", vectors", settings + " %s=1" % VECTORED) for name, settings in cases]
    else:
        test.skip("requests with vectors", "this fio's engine has no such setting")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else test.scratch

    for name, settings in cases:
        where = []

        def scenario(side):
            folder = side.path("files")
            os.makedirs(folder, exist_ok=True)
            where.append(folder)
            return run(side, name, settings, folder)

        pair = test.both(scenario)
        for folder in where:
            if os.path.isdir(folder):
                os.rmdir(folder)
        if pair:
            plain, pollux = pair
            test.check(bool(plain) and all(plain), name + ": there were reads and writes", plain)
            test.compare("requests and bytes of " + name, plain, pollux)

    # Each of 512 threads has a context of its own.
    def threads(side):
        folder = os.path.join(memory, "pollux-fio-%d" % os.getpid())
        os.mkdir(folder)
        try:
            return run(side, "512 threads", THREADS, folder)
        finally:
            os.rmdir(folder)

    pair = test.both(threads)
    if pair:
        test.compare("requests and bytes of 512 threads", *pair)


harness.main(body)
