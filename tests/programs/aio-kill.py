#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 in the middle of AIO writes: what was reported complete is in the file.

A record may be newer than its report, because the next write of it was on its way, but it is never
older, and what lies in the file is always one that was written there."""

import os
import signal
import struct
import sys
import time

import harness

PROGRAM = os.path.join(harness.HERE, "aio-kill-program.py")
RECORDS = 257
SIZE = 4096
KILLS = 25 if harness.LONG else 5
#        depth, O_DIRECT, RESFD, reaps by itself
WAYS = {"buffered": (16, 0, 0, 0), "buffered, own reaping": (16, 0, 0, 1),
        "buffered, told by an eventfd": (16, 0, 1, 0), "direct": (32, 1, 0, 0),
        "direct, told by an eventfd": (8, 1, 1, 0), "direct, own reaping": (32, 1, 0, 1)}


def killed_once(side, way, number):
    data, log = side.path("data-%d" % number), side.path("log-%d" % number)
    for path, size in ((data, SIZE * RECORDS), (log, 8 * RECORDS)):
        with open(path, "wb") as f:
            f.truncate(size)
    p = side.start([sys.executable, PROGRAM, data, log, str(RECORDS)] + [str(v) for v in WAYS[way]],
                   label="writer", prove=number == 0)

    def reported():
        with open(log, "rb") as f:
            return struct.unpack("<%dQ" % RECORDS, f.read())

    # When every record has been reported once, or soon after its beginning: at any moment.
    least = 1 if number % 2 else RECORDS
    harness.wait_for(lambda: sum(n > 0 for n in reported()) >= least or not p.alive(), 40, 0.003)
    time.sleep(0.003 * (number % 7))
    alive = p.alive()
    p.send(signal.SIGKILL)
    p.wait()
    said = reported()
    wrong = []
    with open(data, "rb") as f:
        for record, round_ in enumerate(said):
            block = f.read(SIZE)
            have = struct.unpack_from("<QQ", block)
            if not round_ and not any(block):
                continue
            if block != struct.pack("<QQ", *have) * (SIZE // 16):
                wrong.append("record %d is in pieces" % record)
            elif have[0] != record or have[1] < round_ or have[1] > round_ + 1:
                wrong.append("record %d: reported %d, has %s" % (record, round_, have))
    side.check(alive and p.status == -signal.SIGKILL, "%s: it was at work until the end" % way,
               p.said())
    side.check(sum(n > 0 for n in said) >= least, "%s: it got as far as it should" % way, p.said())
    side.check(not wrong, "%s: what was reported is there" % way, "\n".join(wrong[:20]))
    os.unlink(data)
    os.unlink(log)


def body(test):
    for way, settings in WAYS.items():
        if settings[1]:
            try:
                probe = os.path.join(test.scratch, "probe")
                os.close(os.open(probe, os.O_RDWR | os.O_CREAT | os.O_DIRECT))
            except OSError:
                test.skip(way, "no O_DIRECT on the file system of the scratch folder")
                continue

        def scenario(side):
            for number in range(KILLS):
                killed_once(side, way, number)

        test.both(scenario)


harness.main(body)
