#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""haproxy in front of two servers: threads, keep-alive and not, a backend that dies and comes
back, and a reload that hands its listeners over to a new process."""

import hashlib
import http.client
import http.server
import os
import re
import signal
import socketserver
import threading
import time

import harness

REQUESTS = 6000 if harness.LONG else 500
BIG = 3000000

CONFIG = """
global
	nbthread 4
	maxconn 500
	stats socket %(dir)s/admin level admin expose-fd listeners
	log stderr format raw local0 err
	hard-stop-after 20s
defaults
	mode http
	timeout connect 5s
	timeout client 30s
	timeout server 30s
	retries 3
	option redispatch
frontend front
	bind 127.0.0.1:%(port)d
	http-response set-header X-Generation %(generation)d
	default_backend back
backend back
	balance roundrobin
	default-server check inter 2s fastinter 100ms
	server a 127.0.0.1:%(a)d
	server b 127.0.0.1:%(b)d
"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one piece: no waiting for acknowledgements between them.
    wbufsize = 1 << 16

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Backend", self.server.label)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        n = int(self.path.partition("=")[2] or 0)
        self.answer((self.path.encode() * (n // len(self.path) + 1))[:n])

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(data).hexdigest().encode())

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A health check ends its connection as it likes."""


def serve(label):
    s = Server(("127.0.0.1", 0), Handler)
    s.label = label
    threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True).start()
    return s


def client(port, number, keep, count, state):
    """count None: until state["over"]."""
    c, i = None, 0
    while (i < count) if count else not state["over"]:
        i += 1
        try:
            c = c or http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {} if keep else {"Connection": "close"}
            if i % 5 == 0:
                data = b"%d.%d" % (number, i) * (1 + i * 37 % 20000)
                c.request("POST", "/", data, headers)
                want = hashlib.sha256(data).hexdigest().encode()
            else:
                n = [0, 10, 2000, 40000][i % 4] if i % 50 else BIG
                path = "/%d/%d?n=%d" % (number, i, n)
                c.request("GET", path, headers=headers)
                want = (path.encode() * (n // len(path) + 1))[:n]
            r = c.getresponse()
            got = r.read()
            if r.status != 200 or got != want:
                state["bad"].append("request %d: status %d, %d bytes" % (i, r.status, len(got)))
                break
            with state["lock"]:
                state["backends"][r.headers["X-Backend"]] = \
                    state["backends"].get(r.headers["X-Backend"], 0) + 1
                state["generations"].add(r.headers["X-Generation"])
        except (OSError, http.client.HTTPException) as e:
            state["bad"].append("request %d: %r" % (i, e))
            break
        if not keep:
            c.close()
            c = None
    if c:
        c.close()


def clients(port, keep, count, number=4):
    state = {"bad": [], "backends": {}, "generations": set(), "lock": threading.Lock(),
             "over": False}
    state["threads"] = [threading.Thread(target=client, args=(port, i, keep, count, state),
                                         daemon=True) for i in range(number)]
    for t in state["threads"]:
        t.start()
    return state


def join(state):
    for t in state["threads"]:
        t.join(120)
    return sum(state["backends"].values())


def scenario(side):
    a, b = serve("a"), serve("b")
    port = harness.free_port()
    config = side.path("haproxy.cfg")
    values = {"dir": side.dir, "port": port, "a": a.server_address[1], "b": b.server_address[1]}

    def configure(generation):
        with open(config, "w") as f:
            f.write(CONFIG % dict(values, generation=generation))

    def workers():
        return harness.descendants(haproxy.pid)

    def said(text):
        return text in harness.read_text(haproxy.err)

    configure(1)
    haproxy = side.start(["haproxy", "-W", "-db", "-f", config])
    side.require(harness.wait_for(lambda: harness.answers(port), 20), "haproxy answers",
                 haproxy.said())
    side.require(harness.wait_for(workers, 10), "a worker", haproxy.said())
    for pid in workers():
        side.prove(pid, "the worker")

    rates, shares = {}, {}
    for keep in True, False:
        kind = "keep-alive" if keep else "connection per request"
        began = time.monotonic()
        state = clients(port, keep, REQUESTS)
        n = join(state)
        rates[kind] = n / (time.monotonic() - began)
        side.check(not state["bad"] and n == 4 * REQUESTS, kind + ": every answer is right",
                   "%d\n%s\n%s" % (n, "\n".join(state["bad"][:5]), haproxy.said()))
        shares[kind] = sorted(state["backends"])

    # A server that goes away is left out, and taken in again when it is back.
    b.shutdown()
    b.server_close()
    state = clients(port, False, REQUESTS // 2)
    join(state)
    # What was on its way when the server died may end with an error; nothing may hang.
    side.check(not any(t.is_alive() for t in state["threads"]), "a dead server: nobody waits",
               haproxy.said())
    # Until the checks have failed, what is kept open to the server is used, and still answers.
    side.check(harness.wait_for(lambda: said("Server back/b is DOWN"), 40),
               "a dead server is noticed", haproxy.said())
    state = clients(port, False, 50)
    side.check(join(state) == 200 and list(state["backends"]) == ["a"], "a dead server is left out",
               "%s %s\n%s" % (state["backends"], state["bad"][:5], haproxy.said()))

    # Reload under load: the new process is given the listeners through a socket.
    #
    # A master loses signals in two ways. It executes itself twice, the second time after the new
    # worker has begun to answer; what comes meanwhile is blocked, and then discarded by
    # signal(SIG_IGN). And its handler puts signals into a queue, in which one overwrites another
    # that it interrupts. So it is sent a signal when no other can be on its way, and the next
    # when it has said what became of the worker of before.
    before = set(workers())
    side.require(harness.takes(haproxy.pid, signal.SIGUSR2), "the master takes SIGUSR2",
                 haproxy.said())
    state = clients(port, False, None)
    configure(2)
    haproxy.send(signal.SIGUSR2)
    side.check(harness.wait_for(lambda: "2" in state["generations"], 40), "a reload takes effect",
               haproxy.said())
    side.check(harness.wait_for(lambda: not before & set(workers()), 40),
               "the worker of before ends", haproxy.said())
    state["over"] = True
    n = join(state)
    side.check(not state["bad"] and n > 0, "reload: no request is lost",
               "\n".join(state["bad"][:5]) + haproxy.said())
    for pid in workers():
        side.prove(pid, "the worker after the reload", haproxy)
    buried = harness.wait_for(
        lambda: all(said("Former worker (%d) exited" % p) for p in before), 40)
    side.require(buried and harness.takes(haproxy.pid, signal.SIGUSR1),
                 "the master has heard of its end and takes signals", haproxy.said())
    haproxy.send(signal.SIGUSR1)
    status = haproxy.wait(60)
    side.check(status == 0, "haproxy ends with status 0", haproxy.said())
    if side.pollux:
        side.check(haproxy.adopted("epolls") >= 4, "the threads were served", haproxy.said())
    a.shutdown()
    a.server_close()
    wrong = re.findall(r".*(?:ALERT|BUG|FATAL).*", harness.read_text(haproxy.err))
    return rates, shares, [w for w in wrong if "exited" not in w]


def body(test):
    test.need("haproxy")
    if os.cpu_count() == 1:
        test.note("one CPU: the threads take turns")
    pair = test.both(scenario)
    if pair:
        test.compare("backends", pair[0][1], pair[1][1])
        test.compare("complaints", [re.sub(r"\d+", "N", w) for w in pair[0][2]],
                     [re.sub(r"\d+", "N", w) for w in pair[1][2]])
        test.compare_rates(pair[0][0], pair[1][0], lambda side: scenario(side)[0])


harness.main(body)
