#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""memcached: its listener hands connections to the worker threads through eventfds."""

import random
import signal
import socket
import threading
import time

import harness

OPERATIONS = 30000 if harness.LONG else 8000
CONNECTIONS = 1500 if harness.LONG else 600


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), 30)
    s.settimeout(30)
    return s, s.makefile("rb")


def client(port, number, wrong):
    try:
        rng = random.Random(number)
        s, f = connect(port)
        own = {}
        for i in range(OPERATIONS):
            key = b"k%d.%d" % (number, rng.randrange(300))
            what = rng.random()
            if what < 0.4:
                value = rng.randbytes(rng.choice([0, 1, 100, 3000, 60000]))
                s.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
                good = f.readline() == b"STORED\r\n"
                own[key] = value
            elif what < 0.5:
                s.sendall(b"delete %s\r\n" % key)
                good = f.readline() == (b"DELETED\r\n" if key in own else b"NOT_FOUND\r\n")
                own.pop(key, None)
            else:
                s.sendall(b"get %s\r\n" % key)
                line = f.readline()
                if key in own:
                    good = line == b"VALUE %s 0 %d\r\n" % (key, len(own[key])) and \
                        f.read(len(own[key]) + 2) == own[key] + b"\r\n" and \
                        f.readline() == b"END\r\n"
                else:
                    good = line == b"END\r\n"
            if not good:
                wrong.append("client %d, operation %d" % (number, i))
                break
        f.close()
        s.close()
    except OSError as e:
        wrong.append("client %d: %r" % (number, e))


def comers_and_goers(port, wrong):
    """Each connection is one hand-over to a worker."""
    try:
        for i in range(CONNECTIONS):
            s, f = connect(port)
            s.sendall(b"incr counter 1\r\n")
            said = f.readline()
            f.close()
            s.close()
            if not said.strip().isdigit():
                wrong.append("connection %d: %r" % (i, said))
                break
    except OSError as e:
        wrong.append("connection: %r" % e)


def scenario(side):
    port = harness.free_port()
    memcached = side.start(["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "4",
                            "-m", "256", "-u", "root"])
    side.require(harness.wait_for(lambda: harness.answers(port), 20), "memcached answers",
                 memcached.said())
    s, f = connect(port)
    s.sendall(b"set counter 0 0 1\r\n0\r\n")
    f.readline()

    wrong = []
    began = time.monotonic()
    threads = [threading.Thread(target=client, args=(port, i, wrong), daemon=True)
               for i in range(4)]
    threads += [threading.Thread(target=comers_and_goers, args=(port, wrong), daemon=True)
                for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(150)
    rate = (4 * OPERATIONS + 2 * CONNECTIONS) / (time.monotonic() - began)
    # One after the other: nobody else comes and wakes the worker that was forgotten.
    comers_and_goers(port, wrong)
    side.check(not wrong and not any(t.is_alive() for t in threads), "every answer is right",
               "%s\n%s" % ("\n".join(wrong[:5]), memcached.said()))
    s.sendall(b"get counter\r\n")
    counter = list(iter(f.readline, b"END\r\n"))[1].strip().decode()
    s.sendall(b"stats\r\n")
    stats = dict(line.split()[1:3] for line in iter(f.readline, b"END\r\n"))
    f.close()
    s.close()
    status = memcached.stop(signal.SIGTERM)
    side.check(status == 0, "memcached ends with status 0", memcached.said())
    if side.pollux:
        side.check(memcached.adopted("epolls") >= 5 and memcached.adopted("eventfds") >= 4,
                   "listener and workers were served", memcached.said())
    return {"operations": rate}, {"counter": counter, **{k: stats[k.encode()].decode() for k in
                  ("threads", "cmd_get", "cmd_set", "get_hits", "curr_items", "bytes")}}


def body(test):
    test.need("memcached")
    pair = test.both(scenario)
    if pair:
        test.compare("figures", pair[0][1], pair[1][1])
        test.compare_rates(pair[0][0], pair[1][0], lambda side: scenario(side)[0])


harness.main(body)
