#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""QEMU's block layer with native AIO and with io_uring: images written and read past the page
cache, raw and qcow2.

With native AIO it looks for completions in the ring by itself when the eventfd of a request tells
it to. Its io_uring is liburing's, and waits for the eventfd that its threads wake the loop by. Each
image must hold afterwards what was written to it, byte by byte."""

import hashlib
import os
import random
import subprocess

import harness

CLUSTER = 4096
CLUSTERS = 4096
BATCHES = 60 if harness.LONG else 12
BATCH = 24
BENCH = ["-c", "20000" if harness.LONG else "3000"]


def script(seed):
    """Commands for qemu-io, and the image that they must leave."""
    draw = random.Random(seed)
    image = bytearray(CLUSTERS * CLUSTER)
    lines = []
    for _ in range(BATCHES):
        # Requests of one batch are in flight together, so no two of them touch one cluster.
        cuts = sorted(draw.sample(range(CLUSTERS), BATCH * 2))
        for first, last in zip(cuts[::2], cuts[1::2]):
            first, size = first * CLUSTER, min(last - first, 64) * CLUSTER
            same = image[first:first + size]
            if same.count(same[0]) == size and draw.random() < 0.5:
                lines.append("aio_read -P %d %d %d" % (same[0], first, size))
            else:
                value = draw.randrange(1, 256)
                image[first:first + size] = bytes([value]) * size
                lines.append("aio_write -P %d %d %d" % (value, first, size))
        lines.append("aio_flush")
        if draw.random() < 0.3:
            lines.append("flush")
    for first in range(0, len(image), 16 * CLUSTER):
        same = image[first:first + 16 * CLUSTER]
        if same.count(same[0]) == len(same):
            lines.append("aio_read -P %d %d %d" % (same[0], first, len(same)))
    lines += ["aio_flush", "quit"]
    return lines, bytes(image)


def contents(side, path, form):
    if form != "raw":
        raw = path + ".raw"
        p = side.run(["qemu-img", "convert", "-f", form, "-O", "raw", path, raw], "convert")
        side.require(p.status == 0, "%s: it can be read as a whole" % form, p.said())
        path = raw
    with open(path, "rb") as f:
        return f.read()


def served(side, p, engine, what):
    if side.pollux and engine == "native":
        side.check(p.contexts() >= 1, what + ": its context was made in process", p.said())


def written(side, form, engine):
    lines, image = script(form)
    path = side.path("image.%s.%s" % (engine, form))
    what = "%s, %s" % (form, engine)
    p = side.run(["qemu-img", "create", "-q", "-f", form, path, str(len(image))], "create")
    side.require(p.status == 0, "%s: there is an image" % what, p.said())

    commands = side.path("commands." + engine)
    with open(commands, "w") as f:
        f.write("\n".join(lines) + "\n")
    with open(commands) as f:
        p = side.start(["qemu-io", "-i", engine, "-t", "none", "-f", form, path], what,
                       stdin=f)
        status = p.wait(90)
    said = p.text + harness.read_text(p.err)
    requests = sum(line.startswith("aio_") and line != "aio_flush" for line in lines)
    side.check(status == 0, "%s: status 0" % what, p.said())
    side.check("failed" not in said, "%s: no request failed" % what, p.said())
    side.check(said.count("bytes at offset") == requests,
               "%s: every request was answered once" % what, "%d requests\n%s"
               % (requests, p.said()))
    served(side, p, engine, what)
    found = contents(side, path, form)
    side.check(found == image, "%s: the image is what was written" % what,
               "%d bytes of %d, clusters that differ: %s" % (len(found), len(image), [
                   n for n in range(CLUSTERS)
                   if found[n * CLUSTER:(n + 1) * CLUSTER] != image[n * CLUSTER:(n + 1) * CLUSTER]
               ][:20]))
    return hashlib.sha256(found).hexdigest()


def benched(side, engine):
    path = side.path("bench.%s.raw" % engine)
    p = side.run(["qemu-img", "create", "-q", "-f", "raw", path, "64M"], "create")
    side.require(p.status == 0, "bench, %s: there is an image" % engine, p.said())
    for what, options in (("reads", []), ("writes", ["-w"]),
                          ("writes with flushes", ["-w", "--flush-interval=64"])):
        p = side.run(["qemu-img", "bench", "-i", engine, "-t", "none", "-f", "raw", "-d", "32"]
                     + BENCH + options + [path], "bench", timeout=90)
        what = "bench, %s: %s" % (engine, what)
        side.check(p.status == 0 and "Run completed" in p.text, what, p.said())
        served(side, p, engine, what)
    return True


def has(test, engine):
    """Whether this QEMU, on this kernel, without Pollux, can do it at all."""
    path = os.path.join(test.scratch, "tried")
    with open(path, "wb") as f:
        f.truncate(CLUSTER)
    p = subprocess.run(["qemu-io", "-i", engine, "-t", "none", "-f", "raw", "-c", "read 0 4096",
                        path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    if p.returncode != 0:
        test.skip(engine, (p.stdout.splitlines() or ["nothing said"])[-1])
    return p.returncode == 0


def body(test):
    test.need("qemu-img")
    for engine in ("native", "io_uring"):
        if not has(test, engine):
            continue
        for form in ("raw", "qcow2"):
            pair = test.both(lambda side: written(side, form, engine))
            if pair:
                test.compare("the image, %s, %s" % (form, engine), *pair)
        pair = test.both(lambda side: benched(side, engine))
        if pair:
            test.compare("qemu-img bench, " + engine, *pair)


harness.main(body)
