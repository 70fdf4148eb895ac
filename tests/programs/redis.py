#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""redis: load, pipelining, blocking clients, BGSAVE and AOF rewrite under load, and the data
compared afterwards, also after a restart from each of the two files."""

import csv
import io
import random
import signal
import socket
import subprocess
import threading

import harness

KEYS = 60000 if harness.LONG else 10000
REQUESTS = 200000 if harness.LONG else 15000


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.settimeout(60)
        self.file = self.socket.makefile("rb")

    def send(self, *commands):
        out = bytearray()
        for c in commands:
            out += b"*%d\r\n" % len(c)
            for a in c:
                a = a if isinstance(a, bytes) else str(a).encode()
                out += b"$%d\r\n%s\r\n" % (len(a), a)
        self.socket.sendall(out)

    def answer(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind == b"$":
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        if kind == b"*":
            n = int(rest)
            return None if n < 0 else [self.answer() for _ in range(n)]
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        raise ValueError("redis says: %r" % line)

    def call(self, *command):
        self.send(command)
        return self.answer()

    def pipeline(self, commands):
        self.send(*commands)
        return [self.answer() for _ in commands]

    def info(self, field):
        for line in self.call("INFO").decode().splitlines():
            if line.startswith(field + ":"):
                return line.partition(":")[2]
        return None

    def close(self):
        self.file.close()
        self.socket.close()


def writer(port, number, wrong):
    """One client's own keys, in a deterministic order, with pipelines of many lengths."""
    try:
        rng = random.Random(number)
        c = Client(port)
        own = {}
        done = 0
        while done < KEYS:
            n = min(rng.choice([1, 1, 2, 10, 100]), KEYS - done)
            commands, want = [], []
            for _ in range(n):
                key = "%d:%d" % (number, rng.randrange(KEYS // 4))
                if rng.random() < 0.7:
                    value = rng.randbytes(rng.choice([0, 10, 100, 100, 5000]))
                    commands.append(("SET", key, value))
                    want.append("OK")
                    own[key] = value
                else:
                    commands.append(("GET", key))
                    want.append(own.get(key))
            if c.pipeline(commands) != want:
                wrong.append("client %d after %d" % (number, done))
                break
            for _ in range(3):
                c.call("RPUSH", "list:%d" % number, done)
            done += n
        c.close()
    except (OSError, ValueError) as e:
        wrong.append("client %d: %r" % (number, e))


def blocked(port, wrong):
    """A client that sleeps in BLPOP until another one pushes."""
    try:
        c, d = Client(port), Client(port)
        for i in range(300):
            c.send(("BLPOP", "queue", 30))
            d.call("RPUSH", "queue", i)
            got = c.answer()
            if got != [b"queue", b"%d" % i]:
                wrong.append("BLPOP %d: %r" % (i, got))
                break
        c.close()
        d.close()
    except (OSError, ValueError) as e:
        wrong.append("BLPOP: %r" % e)


def rates_of(side, port, requests, *options):
    r = subprocess.run(["redis-benchmark", "-p", str(port), "-n", str(requests), "-c", "30",
                        "--csv", "-t", "set,get,lpush"] + list(options), stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=120)
    rates = {}
    for row in csv.reader(io.StringIO(r.stdout)):
        try:
            rates[" ".join(["benchmark", row[0]] + list(options))] = float(row[1])
        except (IndexError, ValueError):
            pass
    side.check(r.returncode == 0 and len(rates) == 3, "redis-benchmark %s" % " ".join(options),
               r.stdout)
    return rates


def scenario(side):
    port = harness.free_port()

    def server(*options):
        p = side.start(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                        "--dir", side.dir, "--enable-debug-command", "yes", "--loglevel", "verbose",
                        # No rewrite but those that are asked for: one at a time is allowed.
                        "--auto-aof-rewrite-percentage", "0"] + list(options))
        side.require(harness.wait_for(lambda: harness.answers(port), 20), "redis answers", p.said())
        c = Client(port)
        side.require(harness.wait_for(lambda: c.info("loading") == "0", 60), "redis has its data",
                     p.said())
        return p, c

    redis, c = server("--appendonly", "yes", "--appendfsync", "everysec")
    rates = rates_of(side, port, REQUESTS)
    rates.update(rates_of(side, port, 20 * REQUESTS, "-P", "16"))
    c.call("FLUSHALL")

    wrong = []
    threads = [threading.Thread(target=writer, args=(port, i, wrong), daemon=True)
               for i in range(6)]
    threads.append(threading.Thread(target=blocked, args=(port, wrong), daemon=True))
    for t in threads:
        t.start()
    saves = rewrites = under_load = 0
    forks = int(c.info("total_forks"))
    for _ in range(3):
        c.call("BGSAVE")
        under_load += any(t.is_alive() for t in threads)
        if harness.wait_for(lambda: c.info("rdb_bgsave_in_progress") == "0", 60):
            saves += c.info("rdb_last_bgsave_status") == "ok"
        c.call("BGREWRITEAOF")
        if harness.wait_for(lambda: c.info("aof_rewrite_in_progress") == "0", 60):
            rewrites += c.info("aof_last_bgrewrite_status") == "ok"
    for t in threads:
        t.join(120)
    side.check(not wrong and not any(t.is_alive() for t in threads),
               "every answer under load is right", "%s\n%s" % ("\n".join(wrong[:5]), redis.said()))
    forks = int(c.info("total_forks")) - forks
    side.check(saves == 3 and rewrites == 3 and under_load and forks == 6,
               "BGSAVE and AOF rewrite end well under load",
               "%d saves, %d rewrites, %d under load, %d forks\n%s"
               % (saves, rewrites, under_load, forks, redis.said()))

    digest = c.call("DEBUG", "DIGEST")
    keys = c.call("DBSIZE")
    c.call("BGSAVE")
    harness.wait_for(lambda: c.info("rdb_bgsave_in_progress") == "0", 60)
    c.close()
    side.check(redis.stop(signal.SIGTERM) == 0, "redis ends with status 0", redis.said())
    if side.pollux:
        # Its threads ask for asynchronous cancellation.
        side.check(redis.adopted("epolls") == 0, "redis was left to the kernel", redis.said())
    for name, append in ("the AOF", "yes"), ("the RDB", "no"):
        again, c = server("--appendonly", append)
        side.check(c.call("DEBUG", "DIGEST") == digest and c.call("DBSIZE") == keys,
                   "the same data after a restart from %s" % name, again.said())
        c.close()
        side.check(again.stop(signal.SIGTERM) == 0, "redis ends again with status 0", again.said())
    return rates, (digest, keys)


def body(test):
    test.need("redis-server")
    pair = test.both(scenario)
    if not pair:
        return
    (plain, data), (pollux, data_too) = pair
    test.compare("data", data, data_too)
    test.compare_rates(plain, pollux, lambda side: scenario(side)[0])


harness.main(body)
