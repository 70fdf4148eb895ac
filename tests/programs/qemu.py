#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""QEMU's block layer with native AIO: images written and read past the page cache, raw and qcow2.

It looks for completions in the ring by itself when the eventfd of a request tells it to. Each
image must hold afterwards what was written to it, byte by byte."""

import hashlib
import random

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


def served(side, p, what):
    if side.pollux:
        side.check(p.contexts() >= 1, what + ": its context was made in process", p.said())


def written(side, form):
    lines, image = script(form)
    path = side.path("image." + form)
    p = side.run(["qemu-img", "create", "-q", "-f", form, path, str(len(image))], "create")
    side.require(p.status == 0, "%s: there is an image" % form, p.said())

    commands = side.path("commands")
    with open(commands, "w") as f:
        f.write("\n".join(lines) + "\n")
    with open(commands) as f:
        p = side.start(["qemu-io", "-i", "native", "-t", "none", "-f", form, path], form, stdin=f)
        status = p.wait(90)
    said = p.text + harness.read_text(p.err)
    requests = sum(line.startswith("aio_") and line != "aio_flush" for line in lines)
    side.check(status == 0, "%s: status 0" % form, p.said())
    side.check("failed" not in said, "%s: no request failed" % form, p.said())
    side.check(said.count("bytes at offset") == requests,
               "%s: every request was answered once" % form, "%d requests\n%s"
               % (requests, p.said()))
    served(side, p, form)
    found = contents(side, path, form)
    side.check(found == image, "%s: the image is what was written" % form,
               "%d bytes of %d, clusters that differ: %s" % (len(found), len(image), [
                   n for n in range(CLUSTERS)
                   if found[n * CLUSTER:(n + 1) * CLUSTER] != image[n * CLUSTER:(n + 1) * CLUSTER]
               ][:20]))
    return hashlib.sha256(found).hexdigest()


def benched(side):
    path = side.path("bench.raw")
    p = side.run(["qemu-img", "create", "-q", "-f", "raw", path, "64M"], "create")
    side.require(p.status == 0, "bench: there is an image", p.said())
    for what, options in (("reads", []), ("writes", ["-w"]),
                          ("writes with flushes", ["-w", "--flush-interval=64"])):
        p = side.run(["qemu-img", "bench", "-i", "native", "-t", "none", "-f", "raw", "-d", "32"]
                     + BENCH + options + [path], "bench", timeout=90)
        side.check(p.status == 0 and "Run completed" in p.text, "bench: %s" % what, p.said())
        served(side, p, "bench: " + what)
    return True


def body(test):
    test.need("qemu-img")
    for form in ("raw", "qcow2"):
        pair = test.both(lambda side: written(side, form))
        if pair:
            test.compare("the image, " + form, *pair)
    pair = test.both(benched)
    if pair:
        test.compare("qemu-img bench", *pair)


harness.main(body)
