#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""curl as an everyday program: downloads, uploads, many transfers at once, and the errors."""

import hashlib
import http.server
import os
import random
import re
import socketserver
import threading

import harness

BIG = random.Random(1).randbytes(3000000)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def answer(self, data, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/big":
            self.answer(BIG)
        elif self.path == "/hold":
            # The client can be looked at as long as this answer is held back.
            self.server.held.set()
            self.server.go_on.wait(30)
            self.answer(b"held\n")
        elif self.path == "/never":
            self.send_response(200)
            self.send_header("Content-Length", "20")
            self.end_headers()
            self.wfile.write(b"0123456789")
            self.wfile.flush()
            # Until the client has gone.
            self.rfile.read(1)
        elif self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/big")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(0, len(BIG), 100000):
                part = BIG[i:i + 100000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        elif self.path.startswith("/n/"):
            self.answer(self.path.encode() * int(self.path[3:]))
        else:
            self.answer(b"no", 404)

    def do_PUT(self):
        if self.headers.get("Expect") == "100-continue":
            self.wfile.flush()
        n = int(self.headers["Content-Length"])
        self.answer(hashlib.sha256(self.rfile.read(n)).hexdigest().encode() + b"\n")

    do_POST = do_PUT

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """Clients that give up are part of the test."""


def scenario(side, server):
    url = "http://127.0.0.1:%d" % server.server_address[1]
    said = {}

    def curl(name, *args, **more):
        p = side.run(["curl", "-sS", "--noproxy", "*"] + list(args), label="curl", **more)
        with open(p.out, "rb") as f:
            # Ports and times are no results.
            text = f.read()
        complaint = re.sub(r"port \d+ after \d+ ms", "", harness.read_text(p.err)
                           .split("pollux:")[0])
        said[name] = [p.status, len(text), hashlib.sha256(text).hexdigest(), complaint]
        return p

    server.held.clear()
    server.go_on.clear()
    p = side.start(["curl", "-sS", "--noproxy", "*", url + "/hold"], prove=False)
    side.require(server.held.wait(20), "curl asks", p.said())
    side.prove(p.pid, "curl")
    server.go_on.set()
    side.check(p.wait(20) == 0 and p.text == "held\n", "curl is answered", p.said())

    curl("big", url + "/big")
    curl("chunks", url + "/chunks")
    curl("redirect", "-L", url + "/redirect")
    curl("by name", "http://localhost:%d/big" % server.server_address[1])
    upload = side.path("upload")
    with open(upload, "wb") as f:
        f.write(BIG[:2000000])
    curl("put", "-T", upload, url + "/put")
    with open(upload, "rb") as f:
        curl("post from standard input", "--data-binary", "@-", url + "/post", stdin=f)
    curl("missing", "-f", url + "/missing")
    curl("refused", "http://127.0.0.1:%d/" % harness.free_port())
    p = curl("too late", "-m", "0.5", url + "/never")
    del said["too late"]
    side.check(p.status == 28, "a transfer that never ends is given up", p.said())
    curl("limited", "--limit-rate", "4M", url + "/big")
    # Many at once, by curl's own loop, and the files they leave.
    os.mkdir(side.path("many"))
    curl("parallel", "--no-progress-meter", "-Z", "--parallel-max", "20",
         "-o", side.path("many", "#1"), url + "/n/[1-300]")
    all_ = hashlib.sha256()
    names = sorted(os.listdir(side.path("many")), key=int)
    for name in names:
        with open(side.path("many", name), "rb") as f:
            all_.update(f.read())
    said["parallel files"] = [len(names), all_.hexdigest()]
    curl("pipe", "-N", "-o", "-", url + "/big", url + "/chunks")
    for what in ("big", "chunks", "redirect", "by name", "limited"):
        side.check(said[what][0] == 0 and said[what][2] == hashlib.sha256(BIG).hexdigest(),
                   what + " comes whole", said[what])
    return said


def body(test):
    test.need("curl")
    server = Server(("127.0.0.1", 0), Handler)
    server.held, server.go_on = threading.Event(), threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    pair = test.both(lambda side: scenario(side, server))
    server.shutdown()
    if pair:
        for what in pair[0]:
            test.compare("results of " + what, pair[0][what], pair[1].get(what))


harness.main(body)
