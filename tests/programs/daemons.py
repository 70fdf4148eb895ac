#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Servers that put themselves into the background, each in its own way (two forks or one, a new
session, descriptors closed and replaced), with their epoll made before or after."""

import os
import signal
import socket

import harness


def ask(port, question, last):
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.settimeout(20)
        s.sendall(question)
        said = b""
        while last not in said:
            part = s.recv(65536)
            if not part:
                break
            said += part
        return said.decode(errors="replace")


def memcached(side, port):
    pid = side.path("pid")
    return (["memcached", "-d", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root", "-P",
             pid], pid, b"set a 0 0 3\r\nxyz\r\nget a\r\n", b"END\r\n")


def redis(side, port):
    pid = side.path("pid")
    return (["redis-server", "--daemonize", "yes", "--port", str(port), "--bind", "127.0.0.1",
             "--save", "", "--dir", side.dir, "--pidfile", pid, "--logfile", side.path("log")],
            pid, b"PING\r\nSET a xyz\r\nGET a\r\n", b"xyz")


def nginx(side, port):
    config, pid = side.path("nginx.conf"), side.path("pid")
    with open(config, "w") as f:
        f.write("%s daemon on; master_process off; pid %s; error_log %s; events {}\n"
                "http { access_log off; client_body_temp_path %s/t1; proxy_temp_path %s/t2;\n"
                "fastcgi_temp_path %s/t3; uwsgi_temp_path %s/t4; scgi_temp_path %s/t5;\n"
                "server { listen 127.0.0.1:%d; location / { return 200 xyz; } } }\n"
                % (("user root;" if os.getuid() == 0 else "", pid, side.path("log"))
                   + (side.dir,) * 5 + (port,)))
    return (["nginx", "-p", side.dir, "-c", config, "-e", side.path("log")], pid,
            b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", b"\r\n\r\nxyz")


def haproxy(side, port):
    config, pid = side.path("haproxy.cfg"), side.path("pid")
    with open(config, "w") as f:
        f.write("global\n\tpidfile %s\n\tnbthread 2\n\tmaxconn 100\ndefaults\n\tmode http\n"
                "\ttimeout client 9s\n\ttimeout connect 9s\n\ttimeout server 9s\n"
                "frontend f\n\tbind 127.0.0.1:%d\n"
                "\thttp-request return status 200 content-type text/plain string xyz\n"
                % (pid, port))
    return (["haproxy", "-D", "-f", config], pid, b"GET / HTTP/1.0\r\nHost: x\r\n\r\n",
            b"\r\n\r\nxyz")


def start_stop_daemon(side, port):
    """It forks twice, closes all descriptors and starts a program that knows nothing of it."""
    argv, _, question, last = memcached(side, port)
    pid = side.path("own-pid")
    argv.remove("-d")
    return (["start-stop-daemon", "--start", "--background", "--make-pidfile", "--pidfile", pid,
             "--exec", "/usr/bin/memcached", "--"] + argv[1:], pid, question, last)


SERVERS = {"memcached": memcached, "redis-server": redis, "nginx": nginx, "haproxy": haproxy,
           "start-stop-daemon": start_stop_daemon}


def scenario(side, make):
    port = harness.free_port()
    argv, pidfile, question, last = make(side, port)
    label = argv[0]
    p = side.run(argv)
    side.require(p.status == 0, label + " goes into the background", p.said())
    side.require(harness.wait_for(lambda: harness.answers(port), 20), label + " answers", p.said())
    pid = int(harness.wait_for(lambda: harness.read_text(pidfile).strip(), 20) or 0)
    mine = harness.descendants(os.getpid())
    side.require(pid in mine, label + " runs and has left its parent", "%d %s" % (pid, mine))
    side.prove(pid, "the daemon of " + label)
    said = []
    for _ in range(200):
        said.append(ask(port, question, last).splitlines()[-2:])
    # By now: a parent may write the file while its child has not made a session of its own yet.
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    os.kill(pid, signal.SIGTERM)
    ended = harness.wait_for(lambda: pid not in harness.descendants(os.getpid()), 20)
    side.check(ended, label + " ends on SIGTERM",
               "%s\n%s" % (harness.signal_masks("/proc/%d/" % pid),
                           harness.read_text(side.path("log"))[-3000:] + p.said()))
    # A session of its own, and what it says.
    return fields[3] != str(os.getsid(0)), said


def body(test):
    for name, make in SERVERS.items():
        need = {"start-stop-daemon": "memcached"}.get(name, name)
        why = test.cannot_have(need)
        if why or not harness.shutil.which(name):
            test.skip(name, "%s cannot be had here: %s" % (name, why or "not installed"))
            continue
        pair = test.both(lambda side: scenario(side, make))
        if pair:
            test.compare("answers of " + name, *pair)


harness.main(body)
