/* SPDX-License-Identifier: MIT */
/*
 * The library OS and the kernel make the same random calls, and each result is compared: what is
 * returned, the error, the events in their order with their data, the bytes that were read.
 *
 * A process is a thread with a table of descriptors of its own (unshare) on the side of the kernel,
 * and a struct process on the other. One of them runs at a time. Descriptors have the same numbers
 * on both sides, so a step is made of numbers alone, good ones and bad ones.
 *
 * Steps come in rounds. A round begins with one process without descriptors and has a seed of its
 * own, so it can be made again by itself.
 */
#define _GNU_SOURCE
#include "compare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libos.h"

/* Numbers below FIRST are the program's own. Calls name numbers below LIMIT, and rarely more. */
#define FIRST 3
#define LIMIT 40
#define MOST 1024
#define PROCESSES 4
#define ROUND 4000
#define EVENTS 8
#define BYTES 70000
/* No sleep lasts so long, unless something is wrong. */
#define LONG_MS 10000
#define DEEPEST 5

enum call {
	EVENTFD,
	PIPE,
	SOCKETPAIR,
	OPEN_NULL,
	EPOLL_CREATE,
	CLOSE,
	DUP,
	DUP2,
	DUPFD,
	GETFL,
	SETFL,
	READ,
	WRITE,
	SHUTDOWN,
	CTL,
	WAIT,
	POLL,
	SELECT,
	/* Sleeps on one file until another thread makes it ready. */
	SLEEP_READ,
	SLEEP_WRITE,
	SLEEP_WAIT,
	SLEEP_POLL,
	SLEEP_SELECT,
	FORK,
	EXIT,
	SWITCH,
	CALLS,
};

static const char *const call_name[CALLS] = {
	"eventfd",
	"pipe",
	"socketpair",
	"open /dev/null",
	"epoll_create",
	"close",
	"dup",
	"dup2",
	"F_DUPFD",
	"F_GETFL",
	"F_SETFL",
	"read",
	"write",
	"shutdown",
	"epoll_ctl",
	"epoll_wait",
	"poll",
	"select",
	"read that sleeps",
	"write that sleeps",
	"epoll_wait that sleeps",
	"poll that sleeps",
	"select that sleeps",
	"fork",
	"exit",
	"switch",
};

/* How often each of them, in 1024. */
static const int weight[CALLS] = {
	[EVENTFD] = 20,	     [PIPE] = 12,      [SOCKETPAIR] = 12,  [OPEN_NULL] = 3,
	[EPOLL_CREATE] = 24, [CLOSE] = 58,     [DUP] = 14,	   [DUP2] = 14,
	[DUPFD] = 6,	     [GETFL] = 4,      [SETFL] = 14,	   [READ] = 130,
	[WRITE] = 190,	     [SHUTDOWN] = 8,   [CTL] = 240,	   [WAIT] = 200,
	[POLL] = 40,	     [SELECT] = 14,    [SLEEP_READ] = 1,   [SLEEP_WRITE] = 1,
	[SLEEP_WAIT] = 1,    [SLEEP_POLL] = 1, [SLEEP_SELECT] = 1, [FORK] = 4,
	[EXIT] = 4,	     [SWITCH] = 8,
};

/* Which file a number stands for, as far as it matters for choosing. */
struct known {
	enum call made_by;
	int file, end;
};

struct step {
	enum call call;
	int fd, other, op, flags, n;
	uint64_t value;
	/* Of the file that a call sleeps on: who makes it ready, and whether by reading. */
	int partner;
	bool by_reading;
	/* Epolls between the file and the call. */
	int depth;
	unsigned int delay;
	struct epoll_event ev;
	struct pollfd poll[EVENTS];
	fd_set set[3];
	/* What the two numbers stand for, to be printed. */
	struct known file[2];
};

struct result {
	long r;
	int fd[2];
	struct epoll_event ev[EVENTS];
	struct pollfd poll[EVENTS];
	fd_set set[3];
	uint64_t sum;
};

/* --- The two sides: the same calls. ---------------------------------------------------------- */

struct side {
	int (*eventfd)(struct process *p, unsigned int initial, int flags);
	int (*pipe)(struct process *p, int fd[2], int flags);
	int (*socketpair)(struct process *p, int fd[2], int flags);
	int (*open_null)(struct process *p);
	int (*epoll_create)(struct process *p);
	int (*close)(struct process *p, int fd);
	int (*dup)(struct process *p, int fd);
	int (*dup2)(struct process *p, int from, int to);
	int (*dupfd)(struct process *p, int fd, int lowest);
	int (*getfl)(struct process *p, int fd);
	int (*setfl)(struct process *p, int fd, int flags);
	long (*read)(struct process *p, int fd, void *buf, size_t n);
	long (*write)(struct process *p, int fd, const void *buf, size_t n);
	int (*shutdown)(struct process *p, int fd, int how);
	int (*ctl)(struct process *p, int epfd, int op, int fd, const struct epoll_event *ev);
	int (*wait)(struct process *p, int epfd, struct epoll_event *ev, int max, int timeout_ms);
	int (*poll)(struct process *p, struct pollfd *v, unsigned int n, int timeout_ms);
	int (*select)(struct process *p, int n, fd_set *in, fd_set *out, fd_set *ex,
		      int timeout_ms);
};

static const struct side libos = {
	.eventfd = sys_eventfd,
	.pipe = sys_pipe,
	.socketpair = sys_socketpair,
	.open_null = sys_open_null,
	.epoll_create = sys_epoll_create,
	.close = sys_close,
	.dup = sys_dup,
	.dup2 = sys_dup2,
	.dupfd = sys_dupfd,
	.getfl = sys_getfl,
	.setfl = sys_setfl,
	.read = sys_read,
	.write = sys_write,
	.shutdown = sys_shutdown,
	.ctl = sys_epoll_ctl,
	.wait = sys_epoll_wait,
	.poll = sys_poll,
	.select = sys_select,
};

static long value_or_errno(long r)
{
	return r < 0 ? -errno : r;
}

static int k_eventfd(struct process *p, unsigned int initial, int flags)
{
	(void)p;
	return (int)value_or_errno(eventfd(initial, flags));
}

static int k_pipe(struct process *p, int fd[2], int flags)
{
	(void)p;
	return (int)value_or_errno(pipe2(fd, flags));
}

static int k_socketpair(struct process *p, int fd[2], int flags)
{
	(void)p;
	return (int)value_or_errno(
		socketpair(AF_UNIX, SOCK_STREAM | (flags ? SOCK_NONBLOCK : 0), 0, fd));
}

static int k_open_null(struct process *p)
{
	(void)p;
	return (int)value_or_errno(open("/dev/null", O_RDWR));
}

static int k_epoll_create(struct process *p)
{
	(void)p;
	return (int)value_or_errno(epoll_create1(0));
}

static int k_close(struct process *p, int fd)
{
	(void)p;
	return (int)value_or_errno(close(fd));
}

static int k_dup(struct process *p, int fd)
{
	(void)p;
	return (int)value_or_errno(dup(fd));
}

static int k_dup2(struct process *p, int from, int to)
{
	(void)p;
	return (int)value_or_errno(dup2(from, to));
}

static int k_dupfd(struct process *p, int fd, int lowest)
{
	(void)p;
	return (int)value_or_errno(fcntl(fd, F_DUPFD, lowest));
}

static int k_getfl(struct process *p, int fd)
{
	long r = value_or_errno(fcntl(fd, F_GETFL));

	(void)p;
	return r < 0 ? (int)r : (int)r & (O_ACCMODE | O_NONBLOCK);
}

static int k_setfl(struct process *p, int fd, int flags)
{
	(void)p;
	return (int)value_or_errno(fcntl(fd, F_SETFL, flags));
}

static long k_read(struct process *p, int fd, void *buf, size_t n)
{
	(void)p;
	return value_or_errno(read(fd, buf, n));
}

static long k_write(struct process *p, int fd, const void *buf, size_t n)
{
	(void)p;
	return value_or_errno(write(fd, buf, n));
}

static int k_shutdown(struct process *p, int fd, int how)
{
	(void)p;
	return (int)value_or_errno(shutdown(fd, how));
}

static int k_ctl(struct process *p, int epfd, int op, int fd, const struct epoll_event *ev)
{
	(void)p;
	return (int)value_or_errno(epoll_ctl(epfd, op, fd, (struct epoll_event *)ev));
}

static int k_wait(struct process *p, int epfd, struct epoll_event *ev, int max, int timeout_ms)
{
	(void)p;
	return (int)value_or_errno(epoll_wait(epfd, ev, max, timeout_ms));
}

static int k_poll(struct process *p, struct pollfd *v, unsigned int n, int timeout_ms)
{
	(void)p;
	return (int)value_or_errno(poll(v, n, timeout_ms));
}

static int k_select(struct process *p, int n, fd_set *in, fd_set *out, fd_set *ex, int timeout_ms)
{
	struct timeval t = {timeout_ms / 1000, timeout_ms % 1000 * 1000};

	(void)p;
	return (int)value_or_errno(select(n, in, out, ex, &t));
}

static const struct side kernel = {
	.eventfd = k_eventfd,
	.pipe = k_pipe,
	.socketpair = k_socketpair,
	.open_null = k_open_null,
	.epoll_create = k_epoll_create,
	.close = k_close,
	.dup = k_dup,
	.dup2 = k_dup2,
	.dupfd = k_dupfd,
	.getfl = k_getfl,
	.setfl = k_setfl,
	.read = k_read,
	.write = k_write,
	.shutdown = k_shutdown,
	.ctl = k_ctl,
	.wait = k_wait,
	.poll = k_poll,
	.select = k_select,
};

/* --- One step on one side. ------------------------------------------------------------------- */

static char pattern[BYTES];

static uint64_t sum_of(const char *buf, long n)
{
	uint64_t sum = 0xcbf29ce484222325ull;

	for (long i = 0; i < n; i++)
		sum = (sum ^ (unsigned char)buf[i]) * 0x100000001b3ull;
	return sum;
}

static void do_read(const struct side *s, struct process *p, int fd, int n, struct result *out)
{
	static char buf[BYTES];

	out->r = s->read(p, fd, buf, (size_t)n);
	out->sum = out->r > 0 ? sum_of(buf, out->r) : 0;
}

static long do_write(const struct side *s, struct process *p, int fd, int n, uint64_t value)
{
	/* Eight bytes are a number: an eventfd takes it. */
	if (n == (int)sizeof(value))
		return s->write(p, fd, &value, sizeof(value));
	return s->write(p, fd, pattern + value % 251, (size_t)n);
}

/* A blocking file is not asked to sleep: it is made not to block for this one call. */
static void do_transfer(const struct side *s, struct process *p, const struct step *t,
			struct result *out)
{
	int flags = s->getfl(p, t->fd);
	bool blocks = flags >= 0 && !(flags & O_NONBLOCK);

	if (blocks && t->flags)
		s->setfl(p, t->fd, O_NONBLOCK);
	if (t->call == READ)
		do_read(s, p, t->fd, t->n, out);
	else
		out->r = do_write(s, p, t->fd, t->n, t->value);
	if (blocks && t->flags)
		s->setfl(p, t->fd, 0);
}

/* What another thread of the process does while a call sleeps. */
struct helper {
	const struct side *side;
	struct process *p;
	const struct step *step;
	long r;
};

static void *help(void *arg)
{
	struct helper *h = arg;
	struct result got = {0};

	if (h->step->delay)
		usleep(h->step->delay);
	if (h->step->by_reading)
		do_read(h->side, h->p, h->step->partner, BYTES, &got);
	else
		got.r = do_write(h->side, h->p, h->step->partner, 8, 1);
	h->r = got.r;
	return NULL;
}

static void fail(const char *what)
{
	fprintf(stderr, "libos: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Epolls, each of which watches the one before, and the first of them fd. How many were made. */
static int chain_make(const struct side *s, struct process *p, const struct step *t, int *ep,
		      struct result *out)
{
	struct epoll_event ev = t->ev;
	int n = 0, fd = t->fd;

	while (n < t->depth && out->r >= 0) {
		ep[n] = s->epoll_create(p);
		if (ep[n] < 0)
			fail("no epoll");
		out->r = s->ctl(p, ep[n], EPOLL_CTL_ADD, fd, &ev);
		ev.events = EPOLLIN;
		fd = ep[n++];
	}
	return n;
}

static void sleep_at(const struct side *s, struct process *p, const struct step *t, int fd,
		     struct result *out)
{
	struct helper h = {.side = s, .p = p, .step = t};
	pthread_t thread;

	process_share(p);
	if (pthread_create(&thread, NULL, help, &h))
		fail("no thread");
	switch (t->call) {
	case SLEEP_READ:
		do_read(s, p, fd, t->n, out);
		break;
	case SLEEP_WRITE:
		out->r = do_write(s, p, fd, t->n, t->value);
		break;
	case SLEEP_WAIT:
		out->r = s->wait(p, fd, out->ev, EVENTS, LONG_MS);
		break;
	case SLEEP_POLL:
		out->poll[0] = (struct pollfd){.fd = fd, .events = POLLIN};
		out->r = s->poll(p, out->poll, 1, LONG_MS);
		break;
	default:
		FD_SET(fd, &out->set[0]);
		out->r = s->select(p, fd + 1, &out->set[0], NULL, NULL, LONG_MS);
		break;
	}
	pthread_join(thread, NULL);
	out->fd[0] = (int)h.r;
}

static void do_sleep(const struct side *s, struct process *p, const struct step *t,
		     struct result *out)
{
	int ep[DEEPEST], n = chain_make(s, p, t, ep, out);

	/* A file may be on as many paths already as there may be (EINVAL). */
	if (out->r >= 0)
		sleep_at(s, p, t, n ? ep[n - 1] : t->fd, out);
	while (n)
		s->close(p, ep[--n]);
}

static void do_step(const struct side *s, struct process *p, const struct step *t,
		    struct result *out)
{
	switch (t->call) {
	case EVENTFD:
		out->r = s->eventfd(p, (unsigned int)t->value, t->flags);
		break;
	case PIPE:
		out->r = s->pipe(p, out->fd, t->flags);
		break;
	case SOCKETPAIR:
		out->r = s->socketpair(p, out->fd, t->flags);
		break;
	case OPEN_NULL:
		out->r = s->open_null(p);
		break;
	case EPOLL_CREATE:
		out->r = s->epoll_create(p);
		break;
	case CLOSE:
		out->r = s->close(p, t->fd);
		break;
	case DUP:
		out->r = s->dup(p, t->fd);
		break;
	case DUP2:
		out->r = s->dup2(p, t->fd, t->other);
		break;
	case DUPFD:
		out->r = s->dupfd(p, t->fd, t->other);
		break;
	case GETFL:
		out->r = s->getfl(p, t->fd);
		break;
	case SETFL:
		out->r = s->setfl(p, t->fd, t->flags);
		break;
	case READ:
	case WRITE:
		do_transfer(s, p, t, out);
		break;
	case SHUTDOWN:
		out->r = s->shutdown(p, t->fd, t->op);
		break;
	case CTL:
		out->r = s->ctl(p, t->fd, t->op, t->other, t->flags ? NULL : &t->ev);
		break;
	case WAIT:
		out->r = s->wait(p, t->fd, out->ev, t->n, 0);
		break;
	case POLL:
		memcpy(out->poll, t->poll, sizeof(out->poll));
		out->r = s->poll(p, out->poll, (unsigned int)t->n, 0);
		break;
	case SELECT:
		memcpy(out->set, t->set, sizeof(out->set));
		out->r = s->select(p, LIMIT, &out->set[0], &out->set[1], &out->set[2], 0);
		break;
	default:
		do_sleep(s, p, t, out);
		break;
	}
}

/* --- What to do. ----------------------------------------------------------------------------- */

struct task {
	struct process *lib;
	pthread_t thread;
	bool alive, forked;
	struct known known[LIMIT];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct task task[PROCESSES];
	/* Whose turn it is; -1: the round is over. */
	int turn;
	uint64_t random, seed;
	uint64_t step, steps;
	int files;
	/* No number above it has been given out in this round. */
	int highest;
	bool differs, trace;
	struct step last[24];
	uint64_t count[CALLS];
	uint64_t sleeps, events, processes;
} run = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
};

static uint32_t chance(uint32_t n)
{
	run.random = run.random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((run.random >> 32) * n >> 32);
}

static int some_number(void)
{
	if (!chance(200))
		return chance(2) ? -1 : 5000;
	return FIRST + (int)chance(LIMIT - FIRST);
}

/* One that is open, if the dice find any. */
static int some_open(const struct task *k)
{
	for (int i = 0; i < 12; i++) {
		int fd = FIRST + (int)chance(LIMIT - FIRST);

		if (k->known[fd].file)
			return fd;
	}
	return some_number();
}

static int some_of(const struct task *k, enum call made_by)
{
	for (int i = 0; i < 24; i++) {
		int fd = FIRST + (int)chance(LIMIT - FIRST);

		if (k->known[fd].file && k->known[fd].made_by == made_by)
			return fd;
	}
	return some_open(k);
}

static int some_usual(const struct task *k)
{
	return chance(12) ? some_open(k) : some_number();
}

static uint32_t some_events(void)
{
	static const uint32_t bit[] = {EPOLLIN,	 EPOLLIN,     EPOLLIN,	   EPOLLOUT,
				       EPOLLOUT, EPOLLRDHUP,  EPOLLRDNORM, EPOLLWRNORM,
				       EPOLLPRI, EPOLLRDBAND, EPOLLERR,	   EPOLLHUP};
	uint32_t events = EPOLLIN;

	if (!chance(3))
		for (uint32_t i = events = 0, n = chance(4); i < n; i++)
			events |= bit[chance(sizeof(bit) / sizeof(bit[0]))];
	if (!chance(3))
		events |= EPOLLET;
	if (!chance(6))
		events |= EPOLLONESHOT;
	if (!chance(12))
		events |= EPOLLEXCLUSIVE;
	return events;
}

static int some_length(void)
{
	switch (chance(8)) {
	case 0:
		return (int)chance(12);
	case 1:
		return 1 + (int)chance(4096);
	case 2:
		return chance(4) ? 1 + (int)chance(9000) : 4096 * (1 + (int)chance(17));
	default:
		return 8;
	}
}

static uint64_t some_value(void)
{
	switch (chance(24)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX - chance(4);
	case 2:
		return 1ull << chance(64);
	default:
		return 1 + chance(3);
	}
}

/* Not of an epoll: to ask one is to change it, and only one side would be asked. */
static uint32_t mask_of(const struct task *k, int fd, uint32_t wanted)
{
	struct pollfd v = {.fd = fd, .events = (short)wanted};

	if (k->known[fd].made_by == EPOLL_CREATE)
		return 0;
	sys_poll(k->lib, &v, 1, 0);
	return (uint16_t)v.revents;
}

static bool is_file(const struct task *k, int fd)
{
	return fd >= FIRST && fd < LIMIT && k->known[fd].file;
}

/* A number of the end that makes this one ready, or -1. */
static int partner_of(const struct task *k, int fd)
{
	const struct known *w = &k->known[fd];

	if (w->made_by == EVENTFD)
		return fd;
	for (int i = FIRST; i < LIMIT; i++)
		if (k->known[i].file == w->file && k->known[i].end != w->end)
			return i;
	return -1;
}

/* A sleep needs a file that is not ready and can be made so. */
static bool sleep_choose(const struct task *k, struct step *t)
{
	bool writes = t->call == SLEEP_WRITE;
	int fd = some_of(k, writes || chance(2) ? PIPE : chance(2) ? EVENTFD : SOCKETPAIR);
	enum call kind;
	uint32_t not_ready = writes ? EPOLLOUT : EPOLLIN, mask;

	if (!is_file(k, fd))
		return false;
	kind = k->known[fd].made_by;
	if (kind != EVENTFD && kind != PIPE && kind != SOCKETPAIR)
		return false;
	if (kind == PIPE && k->known[fd].end != (writes ? 1 : 0))
		return false;
	if (writes && kind != PIPE)
		return false;
	mask = mask_of(k, fd, not_ready);
	if (mask & (not_ready | EPOLLERR | EPOLLHUP))
		return false;
	t->partner = partner_of(k, fd);
	if (t->partner < 0)
		return false;
	/* The helper must not sleep, and what it does must be enough. */
	if (!writes && !(mask_of(k, t->partner, EPOLLOUT) & EPOLLOUT))
		return false;
	if (!writes && kind == SOCKETPAIR && mask_of(k, t->partner, EPOLLRDHUP) & EPOLLRDHUP)
		return false;
	if ((t->call == SLEEP_READ || writes) && sys_getfl(k->lib, fd) & O_NONBLOCK)
		return false;
	t->fd = fd;
	t->by_reading = writes;
	t->n = writes ? 1 + (int)chance(4096) : 8 + (int)chance(64);
	t->value = 1 + chance(1000);
	t->delay = chance(2) ? 0 : 1 + chance(60);
	t->ev = (struct epoll_event){.events = EPOLLIN | (chance(2) ? EPOLLET : 0u),
				     .data = {.u64 = run.random}};
	if (t->call == SLEEP_WAIT)
		t->depth = 1 + (int)chance(DEEPEST);
	else if (t->call == SLEEP_POLL || t->call == SLEEP_SELECT)
		t->depth = (int)chance(DEEPEST + 1);
	return true;
}

static bool step_choose(const struct task *k, struct step *t)
{
	int dice = (int)chance(1024), left;

	memset(t, 0, sizeof(*t));
	while (dice >= weight[t->call] && t->call < CALLS - 1)
		dice -= weight[t->call++];
	t->fd = some_usual(k);
	t->other = some_usual(k);
	t->flags = chance(3) ? O_NONBLOCK : 0;
	t->n = some_length();
	t->value = some_value();
	switch (t->call) {
	case EVENTFD:
		if (!chance(4))
			t->flags |= EFD_SEMAPHORE;
		t->value = chance(3) ? 0 : t->value;
		break;
	case DUP2:
		if (t->other > LIMIT - 1 || t->other < FIRST)
			t->other = FIRST;
		break;
	case DUPFD:
		t->other = (int)chance(LIMIT / 2);
		break;
	case READ:
		t->fd = some_open(k);
		t->n = chance(2) ? BYTES : t->n;
		/* What is ready does not sleep. */
		t->flags =
			chance(2) || !is_file(k, t->fd) || !(mask_of(k, t->fd, EPOLLIN) & EPOLLIN);
		break;
	case WRITE:
		t->fd = some_open(k);
		t->flags = 1;
		/*
		 * The kernel counts a socket's room by the memory that messages take, and divides
		 * long ones by it.
		 */
		if (is_file(k, t->fd) && k->known[t->fd].made_by == SOCKETPAIR) {
			int to = partner_of(k, t->fd);

			if (to < 0 || (mask_of(k, to, EPOLLIN) & EPOLLIN && chance(4)))
				return false;
			t->n = t->n < 16384 ? t->n : 16384;
			if (mask_of(k, to, EPOLLIN) & EPOLLIN && t->n > 16)
				t->n = 16;
		}
		break;
	case SHUTDOWN:
		t->fd = some_of(k, SOCKETPAIR);
		t->op = (int)chance(20) ? (int)chance(3) : 3;
		break;
	case CTL:
		t->fd = some_of(k, EPOLL_CREATE);
		t->other = some_open(k);
		t->op = chance(40) ? 1 + (int)chance(3) : (int)chance(6) - 1;
		if (t->op == EPOLL_CTL_DEL && chance(2))
			t->op = EPOLL_CTL_ADD;
		t->flags = !chance(100);
		t->ev.events = some_events();
		t->ev.data.u64 = run.random;
		break;
	case WAIT:
		t->fd = some_of(k, EPOLL_CREATE);
		left = (int)chance(16);
		t->n = left < 3 ? left : EVENTS;
		/* Which of the two errors comes first differs between versions of the kernel. */
		if (!t->n && !(is_file(k, t->fd) && k->known[t->fd].made_by == EPOLL_CREATE))
			t->n = 1;
		break;
	case POLL:
		t->n = (int)chance(EVENTS + 1);
		for (int i = 0; i < t->n; i++)
			t->poll[i] = (struct pollfd){.fd = some_usual(k),
						     .events = (short)(some_events() & 0x3fff)};
		break;
	case SELECT:
		for (int i = 0; i < 6; i++)
			FD_SET(i && chance(20) ? some_open(k) & 31 : FIRST + (int)chance(20),
			       &t->set[chance(3)]);
		for (int i = 0; i < 3; i++)
			for (int fd = 0; fd < FIRST; fd++)
				FD_CLR(fd, &t->set[i]);
		break;
	case SLEEP_READ:
	case SLEEP_WRITE:
	case SLEEP_WAIT:
	case SLEEP_POLL:
	case SLEEP_SELECT:
		return sleep_choose(k, t);
	default:
		break;
	}
	return true;
}

/* Numbers that a call has given out or taken back. */
static void step_learn(struct task *k, const struct step *t, const struct result *r)
{
	if (r->r < 0)
		return;
	if (t->call <= DUPFD && r->r > run.highest)
		run.highest = (int)r->r;
	for (int i = 0; i < 2; i++)
		if (t->call <= DUPFD && r->fd[i] > run.highest)
			run.highest = r->fd[i];
	switch (t->call) {
	case EVENTFD:
	case OPEN_NULL:
	case EPOLL_CREATE:
		if (r->r < LIMIT)
			k->known[r->r] = (struct known){t->call, ++run.files, 0};
		break;
	case PIPE:
	case SOCKETPAIR:
		run.files++;
		for (int i = 0; i < 2; i++)
			if (r->fd[i] < LIMIT)
				k->known[r->fd[i]] = (struct known){t->call, run.files, i};
		break;
	case CLOSE:
		if (t->fd < LIMIT)
			k->known[t->fd].file = 0;
		break;
	case DUP:
	case DUP2:
	case DUPFD:
		if (r->r < LIMIT && t->fd < LIMIT)
			k->known[r->r] = k->known[t->fd];
		break;
	default:
		break;
	}
}

/* --- Comparing. ------------------------------------------------------------------------------ */

static void known_print(const char *what, int fd, const struct known *w)
{
	fprintf(stderr, " %s %d", what, fd);
	if (w->file)
		fprintf(stderr, " (%s %d%s)", call_name[w->made_by], w->file, w->end ? "'" : "");
}

static void step_print(const struct step *t)
{
	fprintf(stderr, "  %s", call_name[t->call]);
	known_print("fd", t->fd, &t->file[0]);
	known_print("other", t->other, &t->file[1]);
	fprintf(stderr, " op %d flags %#x n %d value %#" PRIx64 " events %#x/%" PRIx64, t->op,
		(unsigned int)t->flags, t->n, t->value, t->ev.events, t->ev.data.u64);
	if (t->call == POLL)
		for (int i = 0; i < t->n; i++)
			fprintf(stderr, " [%d %#x]", t->poll[i].fd,
				(unsigned int)t->poll[i].events);
	if (t->depth || t->partner)
		fprintf(stderr, " partner %d depth %d", t->partner, t->depth);
	fprintf(stderr, "\n");
}

static void result_print(const char *who, const struct step *t, const struct result *r)
{
	fprintf(stderr, "%s: %ld (%s), numbers %d %d, bytes %#" PRIx64 ", events", who, r->r,
		r->r < 0 ? strerror((int)-r->r) : "no error", r->fd[0], r->fd[1], r->sum);
	for (int i = 0; i < EVENTS && i < r->r; i++)
		fprintf(stderr, " %#x/%" PRIx64, r->ev[i].events, r->ev[i].data.u64);
	if (t->call == POLL || t->call == SLEEP_POLL)
		for (int i = 0; i < EVENTS; i++)
			fprintf(stderr, " %d: %#x", r->poll[i].fd,
				(unsigned int)r->poll[i].revents);
	fprintf(stderr, "\n");
}

static bool step_compare(struct task *k, struct step *t)
{
	static struct result a, b;
	const unsigned int kept = sizeof(run.last) / sizeof(run.last[0]);

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	if (is_file(k, t->fd))
		t->file[0] = k->known[t->fd];
	if (is_file(k, t->other))
		t->file[1] = k->known[t->other];
	run.last[run.step % kept] = *t;
	do_step(&kernel, k->lib, t, &a);
	do_step(&libos, k->lib, t, &b);
	if (run.trace) {
		fprintf(stderr, "%" PRIu64 " process %td:", run.step, k - run.task);
		step_print(t);
		result_print("kernel", t, &a);
	}
	if (!memcmp(&a, &b, sizeof(a))) {
		step_learn(k, t, &a);
		if ((t->call == WAIT || t->call == SLEEP_WAIT) && a.r > 0)
			run.events += (uint64_t)a.r;
		run.sleeps += t->call >= SLEEP_READ && t->call <= SLEEP_SELECT;
		return true;
	}
	fprintf(stderr, "libos: seed %" PRIu64 ", step %" PRIu64 ", process %td: these differ\n",
		run.seed, run.step, k - run.task);
	for (uint64_t i = run.step < kept ? 0 : run.step - kept + 1; i <= run.step; i++)
		step_print(&run.last[i % kept]);
	result_print("kernel", t, &a);
	result_print("libos ", t, &b);
	return false;
}

/* --- Processes. ------------------------------------------------------------------------------ */

static void turn_give(int to)
{
	pthread_mutex_lock(&run.lock);
	run.turn = to;
	pthread_cond_broadcast(&run.changed);
	pthread_mutex_unlock(&run.lock);
}

static bool turn_await(int me)
{
	bool mine;

	pthread_mutex_lock(&run.lock);
	while (run.turn != me && run.turn >= 0)
		pthread_cond_wait(&run.changed, &run.lock);
	mine = run.turn == me;
	pthread_mutex_unlock(&run.lock);
	return mine;
}

static void *task_main(void *arg);

/* Any process that lives. */
static int some_task(void)
{
	int i;

	do
		i = (int)chance(PROCESSES);
	while (!run.task[i].alive);
	return i;
}

static void task_fork(struct task *parent)
{
	struct task *k = run.task;

	while (k < run.task + PROCESSES && k->alive)
		k++;
	if (k == run.task + PROCESSES)
		return;
	memcpy(k->known, parent->known, sizeof(k->known));
	k->lib = process_fork(parent->lib);
	k->alive = true;
	k->forked = false;
	run.processes++;
	if (!k->lib || pthread_create(&k->thread, NULL, task_main, k))
		fail("no process");
	pthread_mutex_lock(&run.lock);
	while (!k->forked)
		pthread_cond_wait(&run.changed, &run.lock);
	pthread_mutex_unlock(&run.lock);
}

/*
 * In the order of the numbers on both sides. A process of the kernel that ends, and close_range,
 * put down what they have closed in the opposite order.
 */
static void task_exit(struct task *k)
{
	for (int fd = FIRST; fd <= run.highest; fd++)
		close(fd);
	process_exit(k->lib);
	k->lib = NULL;
	k->alive = false;
}

/* Steps until another process has its turn. Returns whose, or -1. */
static int task_run(struct task *k)
{
	struct step t;

	for (; run.step < run.steps; run.step++) {
		if (!step_choose(k, &t)) {
			/* Nothing to sleep for: the step is one of the others. */
			run.step--;
			continue;
		}
		run.count[t.call]++;
		if (t.call == FORK) {
			task_fork(k);
		} else if (t.call == SWITCH) {
			run.step++;
			return some_task();
		} else if (t.call == EXIT) {
			int other = some_task();

			if (&run.task[other] == k)
				continue;
			task_exit(k);
			run.step++;
			return other;
		} else if (!step_compare(k, &t)) {
			run.differs = true;
			return -1;
		}
	}
	return -1;
}

static void *task_main(void *arg)
{
	struct task *k = arg;
	int me = (int)(k - run.task), next;

	if (unshare(CLONE_FILES))
		fail("unshare");
	/* What the program was started with. */
	if (!run.step)
		for (int fd = FIRST; fd < MOST; fd++)
			close(fd);
	pthread_mutex_lock(&run.lock);
	k->forked = true;
	pthread_cond_broadcast(&run.changed);
	pthread_mutex_unlock(&run.lock);
	while (turn_await(me)) {
		bool ended;

		next = task_run(k);
		ended = !k->alive;
		if (ended)
			pthread_detach(pthread_self());
		/* From here on a fork may use the place of a process that has ended. */
		turn_give(next);
		if (ended)
			break;
	}
	return NULL;
}

static void round_run(uint64_t seed, uint64_t steps)
{
	struct task *first = &run.task[0];

	run.seed = seed;
	run.random = seed * 0x9e3779b97f4a7c15ull + 1;
	run.step = 0;
	run.steps = steps;
	run.turn = 0;
	run.files = run.highest = 0;
	memset(run.task, 0, sizeof(run.task));
	first->lib = process_new(FIRST, MOST);
	first->alive = true;
	if (!first->lib || pthread_create(&first->thread, NULL, task_main, first))
		fail("no process");
	turn_await(-1);
	for (int i = 0; i < PROCESSES; i++) {
		struct task *k = &run.task[i];

		if (!k->alive)
			continue;
		/* A thread that ends closes what it has. */
		pthread_join(k->thread, NULL);
		process_exit(k->lib);
	}
}

int compare(uint64_t steps, uint64_t seed)
{
	uint64_t done = 0, rounds = 0;

	signal(SIGPIPE, SIG_IGN);
	run.trace = getenv("LIBOS_TRACE") != NULL;
	for (int i = 0; i < BYTES; i++)
		pattern[i] = (char)(i * 7 + i / 251);
	while (done < steps && !run.differs) {
		round_run(seed + rounds, steps - done < ROUND ? steps - done : ROUND);
		done += run.step;
		rounds++;
	}
	if (run.differs)
		return 1;
	printf("%" PRIu64
	       " steps of the library OS and the kernel compared, no difference: %" PRIu64
	       " events, %" PRIu64 " sleeps, %" PRIu64 " forks, seeds %" PRIu64 " to %" PRIu64 "\n",
	       done, run.events, run.sleeps, run.processes, seed, seed + rounds - 1);
	return 0;
}
