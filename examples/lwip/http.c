/* SPDX-License-Identifier: MIT */
/*
 * A network stack of user space and the kernel's, served by one wait.
 *
 * A small HTTP server has its connections from lwIP and from the kernel. Those of lwIP are objects
 * of an epoll (lwsock.c) and need no descriptor; those of the kernel are watched by their
 * descriptors. curl is the client of both. As curl knows nothing of lwIP, it connects to a relay,
 * which is part of the same program and the same wait: from a kernel socket to a connection of lwIP
 * and back.
 *
 *   http             curl fetches files over both, and all bytes are compared
 *   http tap DEVICE  the same without the relay: lwIP, as 10.9.0.2, is at a tap device that is up
 *                      ip tuntap add dev tap9 mode tap
 *                      ip address add 10.9.0.1/24 dev tap9
 *                      ip link set tap9 up
 *   http bench [N]   N rounds of small requests, by an epoll with objects and, in turn, by the
 *                    kernel's epoll with an eventfd for each connection of lwIP
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pollux/epoll.h>

#include "lwsock.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

extern char **environ;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* As printf, into memory that is the caller's. */
__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&s, format, ap) < 0)
		die("vasprintf");
	va_end(ap);
	return s;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* How many descriptors the program has. */
static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	if (!d)
		die("/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	/* Without ".", ".." and that of the folder. */
	return n - 3;
}

/* Either end of a connection: of lwIP, or of the kernel. */
struct end {
	struct lwsock *lw;
	int fd;
};

static ssize_t end_recv(struct end *e, void *buf, size_t n)
{
	ssize_t got;

	if (e->lw)
		return lwsock_recv(e->lw, buf, n);
	got = recv(e->fd, buf, n, 0);
	return got < 0 ? -errno : got;
}

static ssize_t end_send(struct end *e, const void *buf, size_t n)
{
	ssize_t done;

	if (e->lw)
		return lwsock_send(e->lw, buf, n);
	done = send(e->fd, buf, n, MSG_NOSIGNAL);
	return done < 0 ? -errno : done;
}

/* What the wait is for. The data of a registration is the address of one. */
struct source {
	void (*run)(struct source *s);
	struct source *next;
	int dead;
};

/*
 * The epoll of the server: one of Pollux, or, to compare with, the kernel's with an eventfd for
 * each connection of lwIP. ep NULL tells which.
 */
static struct pollux_ep *ep;
static int kernel_ep = -1;
/* Those that have ended: an event of the same wait may still have their address. */
static struct source *dead;

static void watch_fd(int fd, uint32_t events, struct source *s)
{
	struct epoll_event ev = {.events = events, .data.ptr = s};
	int err = ep ? pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev)
		     : epoll_ctl(kernel_ep, EPOLL_CTL_ADD, fd, &ev);

	if (err)
		die("a descriptor is not taken");
}

static void ring(struct lwsock *lw, uint32_t events)
{
	uint64_t one = 1;

	if (lwsock_ring(lw) < 0)
		pollux_file_wake(lwsock_file(lw), events);
	else if (write(lwsock_ring(lw), &one, sizeof(one)) != sizeof(one))
		die("eventfd");
}

static void watch_lw(struct lwsock *lw, uint32_t events, struct source *s)
{
	struct epoll_event ev = {.events = events, .data.ptr = s};

	if (ep) {
		if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, lwsock_file(lw), 0, &ev))
			die("a connection is not taken");
		return;
	}
	/* Edge-triggered: nobody need read it. The first edge is for what has come already. */
	ev.events = EPOLLIN | EPOLLET;
	lwsock_set_ring(lw, eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
	if (epoll_ctl(kernel_ep, EPOLL_CTL_ADD, lwsock_ring(lw), &ev))
		die("an eventfd is not taken");
}

static void end_watch(struct end *e, struct source *s)
{
	uint32_t events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;

	if (e->lw)
		watch_lw(e->lw, events, s);
	else
		watch_fd(e->fd, events, s);
}

static void end_close(struct end *e)
{
	int fd = e->lw ? lwsock_ring(e->lw) : e->fd;

	/* With its file the connection leaves the epoll. */
	if (e->lw)
		lwsock_close(e->lw);
	if (fd >= 0)
		close(fd);
}

/* Waits once and runs what is ready. */
static void turn(int timeout_ms)
{
	struct epoll_event ev[64];
	int n = ep ? pollux_ep_wait(ep, ev, 64, timeout_ms * 1000000ll)
		   : epoll_wait(kernel_ep, ev, 64, timeout_ms);

	for (int i = 0; i < n; i++) {
		struct source *s = ev[i].data.ptr;

		if (!s->dead)
			s->run(s);
	}
	while (dead) {
		struct source *s = dead;

		dead = s->next;
		free(s);
	}
}

static void bury(struct source *s)
{
	s->dead = 1;
	s->next = dead;
	dead = s;
}

/* The files that are served. */
struct document {
	char name[32];
	const char *bytes;
	size_t size;
};

static struct document documents[16];
static size_t document_count;

/* Numbers that look random, the same in each run. */
static void document_make(const char *dir, size_t size)
{
	struct document *d = &documents[document_count++];
	uint64_t x = 88172645463325252ull + size;
	char *path, *bytes;
	int fd;

	snprintf(d->name, sizeof(d->name), "file-%zu", size);
	path = text("%s/%s", dir, d->name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		die(path);
	d->size = size;
	bytes = size ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : NULL;
	if (bytes == MAP_FAILED)
		die("mmap");
	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		bytes[i] = (char)x;
	}
	d->bytes = bytes;
	close(fd);
	free(path);
}

static struct document *document_find(const char *name, size_t len)
{
	for (size_t i = 0; i < document_count; i++)
		if (strlen(documents[i].name) == len && !memcmp(documents[i].name, name, len))
			return &documents[i];
	return NULL;
}

/* A connection of the HTTP server. */
struct conn {
	struct source source;
	struct end end;
	char in[2048], out[4096];
	size_t in_len, out_at, out_len;
	const char *body;
	size_t body_left;
	int last;
};

/* What has been served over lwIP, [1], and over the kernel, [0]. */
static struct {
	long connections, requests;
	uint64_t bytes;
} served[2];
static int open_conns, most_descriptors;

static void conn_end(struct conn *c)
{
	end_close(&c->end);
	open_conns--;
	bury(&c->source);
}

/* The answer to one request, of which the first part is in c->out. */
static void conn_answer(struct conn *c, const char *request, size_t len)
{
	const char *path = len > 5 && !memcmp(request, "GET /", 5) ? request + 5 : NULL;
	const char *end = path ? memchr(path, ' ', (size_t)(request + len - path)) : NULL;
	struct document *d = end ? document_find(path, (size_t)(end - path)) : NULL;
	size_t n, part;

	c->last = !d || memmem(request, len, "\r\nConnection: close\r\n", 21);
	n = (size_t)snprintf(c->out, sizeof(c->out), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s\r\n",
			     d	    ? "200 OK"
			     : path ? "404 Not Found"
				    : "400 Bad Request",
			     d ? d->size : 0, c->last ? "Connection: close\r\n" : "");
	part = d ? d->size : 0;
	if (part > sizeof(c->out) - n)
		part = sizeof(c->out) - n;
	if (part)
		memcpy(c->out + n, d->bytes, part);
	c->out_at = 0;
	c->out_len = n + part;
	c->body = d ? d->bytes + part : NULL;
	c->body_left = d ? d->size - part : 0;
	served[c->end.lw != NULL].requests += d != NULL;
}

static ssize_t conn_send(struct conn *c, const char *bytes, size_t n)
{
	ssize_t done = end_send(&c->end, bytes, n);

	if (done > 0)
		served[c->end.lw != NULL].bytes += (uint64_t)done;
	return done;
}

/* Sends what is left of an answer: 1 if all is out, 0 if there is no room, or an error. */
static ssize_t conn_flush(struct conn *c)
{
	ssize_t n;

	for (; c->out_at < c->out_len; c->out_at += (size_t)n) {
		n = conn_send(c, c->out + c->out_at, c->out_len - c->out_at);
		if (n < 0)
			return n == -EAGAIN ? 0 : n;
	}
	for (; c->body_left; c->body += n, c->body_left -= (size_t)n) {
		n = conn_send(c, c->body, c->body_left);
		if (n < 0)
			return n == -EAGAIN ? 0 : n;
	}
	return 1;
}

/* Edge-triggered: goes on until there is nothing to read, or no room to write. */
static void conn_run(struct source *s)
{
	struct conn *c = pollux_container_of(s, struct conn, source);
	ssize_t n;

	for (;;) {
		char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);

		n = conn_flush(c);
		if (!n)
			return;
		if (n < 0 || c->last)
			break;
		if (end) {
			size_t len = (size_t)(end + 4 - c->in);

			conn_answer(c, c->in, len);
			c->in_len -= len;
			memmove(c->in, c->in + len, c->in_len);
			continue;
		}
		n = end_recv(&c->end, c->in + c->in_len, sizeof(c->in) - c->in_len);
		if (n == -EAGAIN)
			return;
		/* The end, an error, or a request that is too long. */
		if (n <= 0)
			break;
		c->in_len += (size_t)n;
	}
	conn_end(c);
}

static void conn_new(struct end end)
{
	struct conn *c = calloc(1, sizeof(*c));
	int n;

	if (!c)
		die("calloc");
	c->source.run = conn_run;
	c->end = end;
	served[end.lw != NULL].connections++;
	open_conns++;
	end_watch(&c->end, &c->source);
	n = descriptors();
	if (n > most_descriptors)
		most_descriptors = n;
}

/* A relay between a kernel socket and a connection of lwIP. */
struct relay {
	struct source source;
	struct end kernel, lw;
	struct way {
		char buf[32768];
		size_t from, to;
		int ended;
	} up, down;
};

/* 1 if something has been moved, 0 if not, or an error. */
static ssize_t way_move(struct way *w, struct end *in, struct end *out)
{
	ssize_t got = -EAGAIN, put = -EAGAIN;

	if (w->from == w->to && !w->ended) {
		got = end_recv(in, w->buf, sizeof(w->buf));
		if (!got)
			w->ended = 1;
		w->from = 0;
		w->to = got > 0 ? (size_t)got : 0;
	}
	if (w->from < w->to) {
		put = end_send(out, w->buf + w->from, w->to - w->from);
		if (put > 0)
			w->from += (size_t)put;
	}
	if ((got < 0 && got != -EAGAIN) || (put < 0 && put != -EAGAIN))
		return -EPIPE;
	return got > 0 || put > 0;
}

static int way_over(const struct way *w)
{
	return w->ended && w->from == w->to;
}

static void relay_run(struct source *s)
{
	struct relay *r = pollux_container_of(s, struct relay, source);
	ssize_t up, down;

	do {
		up = way_move(&r->up, &r->kernel, &r->lw);
		down = way_move(&r->down, &r->lw, &r->kernel);
	} while (up >= 0 && down >= 0 && up + down > 0);
	if (up < 0 || down < 0 || way_over(&r->up) || way_over(&r->down)) {
		end_close(&r->kernel);
		end_close(&r->lw);
		bury(&r->source);
	}
}

/* The listeners are level-triggered. They take one connection a time. */
struct listener {
	struct source source;
	struct lwsock *lw;
	int fd;
	uint16_t port, to;
};

static int accept_fd(struct listener *l)
{
	int one = 1, fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void listener_run(struct source *s)
{
	struct listener *l = pollux_container_of(s, struct listener, source);
	struct end end = {.lw = NULL, .fd = -1};

	if (l->lw)
		end.lw = lwsock_accept(l->lw);
	else
		end.fd = accept_fd(l);
	/* An eventfd does not tell whether there is a second one. */
	if (end.lw && !ep)
		ring(l->lw, EPOLLIN);
	if (end.lw || end.fd >= 0)
		conn_new(end);
}

static void relay_accept(struct source *s)
{
	struct listener *l = pollux_container_of(s, struct listener, source);
	struct relay *r;
	int fd = accept_fd(l);

	if (fd < 0)
		return;
	r = calloc(1, sizeof(*r));
	if (!r)
		die("calloc");
	r->source.run = relay_run;
	r->kernel.fd = fd;
	r->lw.fd = -1;
	r->lw.lw = lwsock_connect(l->to);
	if (!r->lw.lw)
		die("lwIP has no connection");
	end_watch(&r->kernel, &r->source);
	end_watch(&r->lw, &r->source);
}

static void listen_fd(struct listener *l, void (*run)(struct source *s))
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	l->source.run = run;
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&a, sizeof(a)) || listen(l->fd, 64) ||
	    getsockname(l->fd, (struct sockaddr *)&a, &len))
		die("a port of the kernel");
	l->port = ntohs(a.sin_port);
	watch_fd(l->fd, EPOLLIN, &l->source);
}

static void listen_lw(struct listener *l, uint16_t port)
{
	l->source.run = listener_run;
	l->fd = -1;
	l->port = port;
	l->lw = lwsock_listen(port);
	if (!l->lw)
		die("a port of lwIP");
	watch_lw(l->lw, EPOLLIN, &l->source);
}

static void listener_end(struct listener *l)
{
	struct end end = {.lw = l->lw, .fd = l->fd};

	end_close(&end);
}

/* curl, which fetches all documents, one after the other, over one connection. */
struct child {
	struct source source;
	pid_t pid;
	int fd, status;
};

static int children;

static void child_run(struct source *s)
{
	struct child *c = pollux_container_of(s, struct child, source);

	if (waitpid(c->pid, &c->status, 0) != c->pid)
		die("waitpid");
	close(c->fd);
	children--;
}

static void child_start(struct child *c, int number, const char *dir, const char *where)
{
	char *argv[3 + 2 * COUNT(documents)] = {"curl", "-qsS"};
	size_t n = 2;
	int err;

	for (size_t i = 0; i < document_count; i++) {
		argv[n++] = text("-o%s/%d-%s", dir, number, documents[i].name);
		argv[n++] = text("http://%s/%s", where, documents[i].name);
	}
	c->source.run = child_run;
	err = posix_spawnp(&c->pid, "curl", NULL, NULL, argv, environ);
	while (n > 2)
		free(argv[--n]);
	/* A process, too, is something to wait for. */
	c->fd = err ? -1 : (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (c->fd < 0)
		die("curl");
	children++;
	watch_fd(c->fd, EPOLLIN, &c->source);
}

/* Whether curl has got the document, and the same bytes. An empty one need not have made a file. */
static int document_arrived(const struct document *d, const char *dir, int number)
{
	char *path = text("%s/%d-%s", dir, number, d->name), *bytes = malloc(d->size + 1);
	ssize_t got = 0;
	int fd, same;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (!bytes)
		die("malloc");
	if (fd >= 0) {
		got = read(fd, bytes, d->size + 1);
		close(fd);
		unlink(path);
	}
	same = (fd >= 0 || !d->size) && got == (ssize_t)d->size &&
	       (!got || !memcmp(bytes, d->bytes, d->size));
	if (!same)
		printf("%s: %zd bytes, and not those of %s\n", path, got, d->name);
	free(bytes);
	free(path);
	return same;
}

static int fetch(const char *tap)
{
	static const size_t sizes[] = {0, 1, 1460, 65536, 1000000, 10485760};
	static struct listener lw, kernel, relay;
	struct child child[5] = {{.fd = -1}};
	char dir[] = "/tmp/pollux-lwip-XXXXXX";
	size_t same = 0, all;
	int failed = 0, lw_children = COUNT(child) - 1;

	if (system("command -v curl >/dev/null")) {
		printf("skipped: curl is not installed\n");
		return 77;
	}
	if (!mkdtemp(dir))
		die("mkdtemp");
	for (size_t i = 0; i < COUNT(sizes); i++)
		document_make(dir, sizes[i]);
	if (pollux_ep_new(&ep, NULL))
		die("pollux_ep_new");
	listen_lw(&lw, 80);
	listen_fd(&kernel, listener_run);
	relay.to = lw.port;
	listen_fd(&relay, relay_accept);
	for (int i = 0; i < (int)COUNT(child); i++) {
		int by_lw = i < lw_children;
		char *where = by_lw && tap ? text("10.9.0.2")
					   : text("127.0.0.1:%d", by_lw ? relay.port : kernel.port);

		child_start(&child[i], i, dir, where);
		free(where);
	}
	while (children || open_conns)
		turn(-1);
	for (size_t i = 0; i < COUNT(child); i++) {
		failed += child[i].status != 0;
		for (size_t k = 0; k < document_count; k++)
			same += (size_t)document_arrived(&documents[k], dir, (int)i);
	}
	all = COUNT(child) * document_count;
	for (int i = 1; i >= 0; i--)
		printf("%s: %ld requests on %ld connections, %llu bytes sent\n",
		       i ? "lwIP" : "kernel", served[i].requests, served[i].connections,
		       (unsigned long long)served[i].bytes);
	printf("%zu of %zu files arrived with the same bytes; at most %d descriptors, none of them "
	       "for a connection of lwIP\n",
	       same, all, most_descriptors);
	for (size_t i = 0; i < document_count; i++) {
		char *path = text("%s/%s", dir, documents[i].name);

		unlink(path);
		free(path);
		if (documents[i].size)
			munmap((void *)(uintptr_t)documents[i].bytes, documents[i].size);
	}
	rmdir(dir);
	listener_end(&lw);
	listener_end(&kernel);
	listener_end(&relay);
	pollux_ep_put(ep);
	pollux_quiesce();
	return failed || same != all;
}

/*
 * The comparison: small requests, one at a time on each connection. All are made by this program,
 * so that no descriptor of a client counts but that of the one kernel connection.
 */
#define CLIENTS 200
#define ROUND_NS 400000000ll

static const char request[] = "GET /file-100 HTTP/1.1\r\nHost: pollux\r\n\r\n";
static struct conn wanted;
static int stop;
static long answers;

/* A connection of lwIP, from the client's side. It belongs to an epoll without any descriptor. */
struct client {
	struct lwsock *lw;
	size_t got;
	int asked;
};

static struct load {
	struct client client[CLIENTS];
	struct pollux_ep *ep;
	uint16_t port, kernel_port;
} load;

static void client_run(struct client *c)
{
	char buf[4096];
	ssize_t n = 0;

	for (;;) {
		if (!c->asked) {
			n = lwsock_send(c->lw, request, sizeof(request) - 1);
			if (n == -EAGAIN)
				return;
			c->asked = 1;
			c->got = 0;
		}
		if (n >= 0)
			n = lwsock_recv(c->lw, buf, sizeof(buf));
		if (n == -EAGAIN)
			return;
		if (n <= 0 || c->got + (size_t)n > wanted.out_len ||
		    memcmp(buf, wanted.out + c->got, (size_t)n)) {
			fprintf(stderr, "a wrong answer\n");
			exit(1);
		}
		c->got += (size_t)n;
		if (c->got == wanted.out_len) {
			c->asked = 0;
			__atomic_fetch_add(&answers, 1, __ATOMIC_RELAXED);
		}
	}
}

static void *load_run(void *arg)
{
	struct epoll_event ev[64];
	int n;

	(void)arg;
	for (int i = 0; i < CLIENTS; i++) {
		struct client *c = &load.client[i];

		c->lw = lwsock_connect(load.port);
		c->asked = 0;
		ev[0].events = EPOLLIN | EPOLLOUT | EPOLLET;
		ev[0].data.ptr = c;
		if (!c->lw || pollux_ep_ctl(load.ep, EPOLL_CTL_ADD, lwsock_file(c->lw), 0, ev))
			die("a client");
	}
	while ((n = pollux_ep_wait(load.ep, ev, 64, POLLUX_FOREVER)) != -ESHUTDOWN)
		for (int i = 0; i < n; i++)
			client_run(ev[i].data.ptr);
	for (int i = 0; i < CLIENTS; i++)
		lwsock_close(load.client[i].lw);
	return NULL;
}

static void *kernel_load_run(void *arg)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char buf[4096];

	(void)arg;
	a.sin_port = htons(load.kernel_port);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		die("connect");
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		if (send(fd, request, sizeof(request) - 1, 0) != sizeof(request) - 1 ||
		    recv(fd, buf, wanted.out_len, MSG_WAITALL) != (ssize_t)wanted.out_len ||
		    memcmp(buf, wanted.out, wanted.out_len))
			die("the kernel's connection");
		usleep(1000);
	}
	close(fd);
	return NULL;
}

/* Answers a second, and microseconds of CPU for each. */
struct speed {
	double rate, cpu;
};

static double cpu_us(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static struct speed measure(int native)
{
	static void (*wake)(struct lwsock * s, uint32_t events);
	static uint16_t port = 1000;
	struct listener lw = {.fd = -1}, kernel = {.fd = -1};
	struct speed speed;
	pthread_t t, kt;
	int64_t begin, end;
	double cpu;
	long n;

	if (!wake)
		wake = lwsock_notify;
	lwsock_notify = native ? wake : ring;
	ep = NULL;
	if (native ? pollux_ep_new(&ep, NULL) : (kernel_ep = epoll_create1(EPOLL_CLOEXEC)) < 0)
		die("an epoll");
	most_descriptors = 0;
	listen_lw(&lw, port++);
	listen_fd(&kernel, listener_run);
	load.port = lw.port;
	load.kernel_port = kernel.port;
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	if (pollux_ep_new(&load.ep, NULL) || pthread_create(&t, NULL, load_run, NULL) ||
	    pthread_create(&kt, NULL, kernel_load_run, NULL))
		die("the load");
	n = __atomic_load_n(&answers, __ATOMIC_RELAXED);
	while (open_conns <= CLIENTS || __atomic_load_n(&answers, __ATOMIC_RELAXED) < n + CLIENTS)
		turn(100);
	n = __atomic_load_n(&answers, __ATOMIC_RELAXED);
	cpu = cpu_us();
	begin = now_ns();
	do {
		turn(100);
		end = now_ns();
	} while (end < begin + ROUND_NS);
	n = __atomic_load_n(&answers, __ATOMIC_RELAXED) - n;
	speed.cpu = (cpu_us() - cpu) / (double)n;
	speed.rate = (double)n * 1e9 / (double)(end - begin);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pollux_ep_shutdown(load.ep);
	while (open_conns)
		turn(100);
	pthread_join(t, NULL);
	pthread_join(kt, NULL);
	listener_end(&lw);
	listener_end(&kernel);
	pollux_ep_put(load.ep);
	if (native)
		pollux_ep_put(ep);
	else
		close(kernel_ep);
	return speed;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The median and the quartiles. A round in which others had the CPUs is far from these. */
static void say(const char *what, double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_size);
	printf("%s: %.2f [%.2f..%.2f]\n", what, v[n / 2], v[n / 4], v[n - 1 - n / 4]);
}

static int bench(int rounds)
{
	double rate[99], ratio[99], cpu[2][99];
	char dir[] = "/tmp/pollux-lwip-XXXXXX", *path;
	int fds[2] = {0, 0};

	if (rounds < 1 || rounds > (int)COUNT(rate))
		rounds = 7;
	if (!mkdtemp(dir))
		die("mkdtemp");
	document_make(dir, 100);
	path = text("%s/%s", dir, documents[0].name);
	unlink(path);
	free(path);
	rmdir(dir);
	conn_answer(&wanted, request, sizeof(request) - 1);
	for (int i = 0; i < rounds; i++) {
		struct speed s[2];

		/* Who begins changes from round to round. */
		for (int k = 0; k < 2; k++) {
			int native = (i + k) % 2;

			s[native] = measure(native);
			fds[native] = most_descriptors;
		}
		rate[i] = s[1].rate / s[0].rate;
		ratio[i] = s[0].cpu / s[1].cpu;
		cpu[0][i] = s[0].cpu;
		cpu[1][i] = s[1].cpu;
		printf("objects %.0f answers/s, %.2f us CPU each; eventfds %.0f, %.2f\n", s[1].rate,
		       s[1].cpu, s[0].rate, s[0].cpu);
	}
	printf("%d connections of lwIP and one of the kernel: %d descriptors, with eventfds %d\n",
	       CLIENTS, fds[1], fds[0]);
	say("answers a second, objects / eventfds", rate, rounds);
	say("CPU, eventfds / objects", ratio, rounds);
	say("us of CPU for an answer by objects", cpu[1], rounds);
	say("us of CPU for an answer by eventfds", cpu[0], rounds);
	pollux_quiesce();
	return 0;
}

int main(int argc, char **argv)
{
	const char *tap = argc > 2 && !strcmp(argv[1], "tap") ? argv[2] : NULL;

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && !tap && strcmp(argv[1], "bench")) {
		fprintf(stderr, "usage: %s [tap DEVICE | bench [ROUNDS]]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	lwsock_start(tap);
	return argc < 2 || tap ? fetch(tap) : bench(argc > 2 ? atoi(argv[2]) : 7);
}
