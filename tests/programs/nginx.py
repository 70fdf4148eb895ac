#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nginx: keep-alive, a connection per request, static files from a thread pool (whose threads wake
the worker through an eventfd), reload and graceful shutdown under load."""

import hashlib
import http.client
import os
import random
import re
import signal
import socket
import threading
import time

import harness

SIZES = {"small": 311, "middle": 70000, "big": 9000000}
SECONDS = 12 if harness.LONG else 2

CONFIG = """
daemon off;
%(user)s
worker_processes 2;
pid %(dir)s/pid;
error_log stderr notice;
thread_pool files threads=4;
events { use epoll; worker_connections 512; }
http {
	access_log off;
	keepalive_requests 1000000;
	client_body_temp_path %(dir)s/t1; proxy_temp_path %(dir)s/t2; fastcgi_temp_path %(dir)s/t3;
	uwsgi_temp_path %(dir)s/t4; scgi_temp_path %(dir)s/t5;
	server {
		listen 127.0.0.1:%(port)d;
		root %(dir)s/www;
		location / { sendfile on; }
		location /threads/ { alias %(dir)s/www/; aio threads=files; sendfile off; }
		location /sendfile/ { alias %(dir)s/www/; aio threads=files; sendfile on; }
		location = /generation { return 200 "%(generation)d\\n"; }
	}
}
"""


class Load:
    """Clients that ask for files until they are told to stop; every answer is checked."""

    def __init__(self, port, sums, keep, clients=4):
        self.port, self.sums, self.keep = port, sums, keep
        self.over = threading.Event()
        self.good, self.bad = [0] * clients, []
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True)
                        for i in range(clients)]
        for t in self.threads:
            t.start()

    def client(self, number):
        rng = random.Random(number)
        c = None
        while not self.over.is_set():
            where = rng.choice(["/", "/threads/", "/sendfile/"])
            name = rng.choice(["small"] * 8 + ["middle"] * 3 + ["big"])
            try:
                c = c or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                c.request("GET", where + name,
                          headers={} if self.keep else {"Connection": "close"})
                r = c.getresponse()
                sum_ = hashlib.sha256(r.read()).hexdigest()
                if r.status == 200 and sum_ == self.sums[name]:
                    self.good[number] += 1
                else:
                    self.bad.append("%s%s: status %d, %s" % (where, name, r.status, sum_))
            except (OSError, http.client.HTTPException) as e:
                self.bad.append("%s%s: %r" % (where, name, e))
            if not self.keep or self.bad:
                c.close()
                c = None
        if c:
            c.close()

    def enough(self):
        """However busy the machine is."""
        return harness.wait_for(lambda: sum(self.good) > 20 or self.bad, 60)

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join(60)
        return sum(self.good)


def wrk(side, url, *headers):
    argv = ["wrk", "-t2", "-c16", "-d%ds" % SECONDS, "--timeout", "10s"]
    for h in headers:
        argv += ["-H", h]
    # The load is the same on both sides: plain.
    r = harness.subprocess.run(argv + [url], stdout=harness.subprocess.PIPE,
                               stderr=harness.subprocess.STDOUT, text=True, timeout=60).stdout
    rate = re.search(r"Requests/sec:\s*([\d.]+)", r)
    wrong = re.search(r"Socket errors.*|Non-2xx.*", r)
    side.check(rate and not wrong, "wrk %s: every request is answered" % " ".join(headers), r)
    return float(rate.group(1)) if rate else 0.0


def scenario(side):
    port = harness.free_port()
    www = side.path("www")
    os.mkdir(www)
    sums = {}
    for name, size in SIZES.items():
        data = random.Random(size).randbytes(size)
        sums[name] = hashlib.sha256(data).hexdigest()
        with open(os.path.join(www, name), "wb") as f:
            f.write(data)
    config = side.path("nginx.conf")
    values = {"dir": side.dir, "port": port, "generation": 1,
              "user": "user root;" if os.getuid() == 0 else ""}

    def configure(generation):
        with open(config, "w") as f:
            f.write(CONFIG % dict(values, generation=generation))

    def generation():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        c.request("GET", "/generation", headers={"Connection": "close"})
        text = c.getresponse().read()
        c.close()
        return int(text)

    def two_workers():
        def two():
            found = harness.descendants(nginx.pid)
            return len(found) == 2 and found

        return harness.wait_for(two, 40)

    configure(1)
    nginx = side.start(["nginx", "-p", side.dir, "-c", config, "-e", "stderr"])
    side.require(harness.wait_for(lambda: harness.answers(port), 20), "nginx answers", nginx.said())
    workers = two_workers()
    side.require(workers, "two workers", nginx.said())
    for w in workers:
        side.prove(w, "a worker")

    rates = {}
    for keep in True, False:
        began = time.monotonic()
        load = Load(port, sums, keep)
        time.sleep(SECONDS)
        load.enough()
        n = load.stop()
        seconds = time.monotonic() - began
        kind = "keep-alive" if keep else "connection per request"
        side.check(not load.bad and n > 20, "%s: %s" % (kind, "files come whole"),
                   "%d good\n%s\n%s" % (n, "\n".join(load.bad[:5]), nginx.said()))
        rates["files, " + kind] = n / seconds
    url = "http://127.0.0.1:%d/" % port
    rates["wrk, keep-alive"] = wrk(side, url + "small")
    rates["wrk, connection per request"] = wrk(side, url + "small", "Connection: close")
    rates["wrk, thread pool"] = wrk(side, url + "threads/middle")

    # Reload: no connection is refused and none breaks; the old workers end, the new ones serve.
    load = Load(port, sums, False)
    before = set(harness.descendants(nginx.pid))
    for g in 2, 3, 4:
        configure(g)
        nginx.send(signal.SIGHUP)
        side.check(harness.wait_for(lambda: generation() == g, 40),
                   "reload %d takes effect under load" % g, nginx.said())
    gone = harness.wait_for(lambda: not before & set(harness.descendants(nginx.pid)), 30)
    load.enough()
    n = load.stop()
    side.check(gone, "the workers of before end", nginx.said())
    side.check(not load.bad and n > 20, "reload: no request is lost",
               "%d good\n%s\n%s" % (n, "\n".join(load.bad[:5]), nginx.said()))
    # Those of the reloads between may still be about to end.
    workers = two_workers()
    side.require(workers, "two workers after the reloads", nginx.said())
    for w in workers:
        side.prove(w, "a worker after the reload", nginx)

    # Graceful shutdown: what is being sent is sent to its end.
    slow = socket.create_connection(("127.0.0.1", port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    slow.settimeout(60)
    slow.sendall(b"GET /threads/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    got = slow.recv(1000)
    nginx.send(signal.SIGQUIT)
    side.check(harness.wait_for(lambda: not harness.answers(port), 40),
               "graceful shutdown: no new connections", nginx.said())
    side.check(nginx.alive(), "graceful shutdown: nginx waits for the transfer", nginx.said())
    while True:
        part = slow.recv(1 << 20)
        if not part:
            break
        got += part
    slow.close()
    body = got.partition(b"\r\n\r\n")[2]
    side.check(hashlib.sha256(body).hexdigest() == sums["big"],
               "graceful shutdown: the transfer comes to its end", "%d bytes" % len(body))
    side.check(nginx.wait(30) == 0, "nginx ends with status 0", nginx.said())
    if side.pollux:
        # Its eventfds block: they are the kernel's.
        side.check(nginx.adopted("epolls") >= 2,
                   "the workers were served", nginx.said())
    errors = [l for l in harness.read_text(nginx.err).splitlines()
              if re.search(r"\[(warn|error|crit|alert|emerg)\]", l)]
    return rates, errors


def body(test):
    test.need("nginx", "wrk")
    pair = test.both(scenario)
    if not pair:
        return
    (plain, _), (pollux, errors) = pair
    test.check(not errors, "nginx has nothing to complain about", "\n".join(errors[:10]))
    test.compare_rates(plain, pollux, lambda side: scenario(side)[0])


harness.main(body)
