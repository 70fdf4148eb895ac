/* SPDX-License-Identifier: MIT */
/*
 * What must hold whatever the order of threads: sequences cannot be compared there, but
 * invariants can. The same program runs on the kernel and on Pollux.
 *
 *   level     an item that is always ready is seen by every look, and every ready item gets
 *             its turn
 *   edges     what is written is read: an event that nobody is told of leaves a count behind;
 *             nothing is reported more often than it changed
 *   oneshot   one delivery for each arming
 *   woken     a sleeper is told of every change, and one of several is enough
 *   removed   no wait that begins after DEL has returned reports the item
 *
 * threads [SECONDS [SEED [NAME]]]
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define FILES 12
#define WORKERS 4

static struct {
	int ep;
	int fd[FILES];
	/* Of a pair that is read by hand: the end that is written. */
	int in[FILES];
	bool stop;
	/* All that write and change have ended. */
	bool quiet;
	uint64_t written[FILES], taken[FILES], reported[FILES], armed[FILES];
	uint32_t owned[FILES];
	/* The generation whose DEL has returned last. */
	uint64_t dead[FILES];
	uint64_t returned, seen[FILES];
	int sleepers;
	bool called;
	char wrong[256];
} t;

static double seconds = 1;
static uint64_t seed = 1;

static uint64_t rnd(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

#define load(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define store(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define add(p, v) __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST)

static void fail(const char *what, int file, uint64_t a, uint64_t b)
{
	static uint32_t told;

	if (!add(&told, 1))
		snprintf(t.wrong, sizeof(t.wrong), "%s: file %d, %llu, %llu", what, file,
			 (unsigned long long)a, (unsigned long long)b);
	store(&t.stop, true);
}

static int ctl(int op, int file, uint32_t events, uint64_t generation)
{
	struct epoll_event ev = {.events = events, .data.u64 = generation * FILES + file};

	return epoll_ctl(t.ep, op, t.fd[file], &ev);
}

/* Reads all there is: how much. Pipes are counted in bytes, eventfds by their values. */
static uint64_t drain(int file)
{
	uint64_t sum = 0;
	char bytes[64];
	ssize_t n;

	while ((n = read(t.fd[file], bytes, sizeof(bytes))) > 0) {
		uint64_t value = n;

		if (t.in[file] == t.fd[file])
			memcpy(&value, bytes, sizeof(value));
		sum += value;
	}
	return sum;
}

static void produce(int file)
{
	uint64_t one = 1;
	ssize_t n = t.in[file] == t.fd[file] ? (ssize_t)sizeof(one) : 1;

	/* Counted first: whoever reads it has then been told of it. */
	add(&t.written[file], 1);
	if (write(t.in[file], &one, n) != n)
		add(&t.written[file], -1);
}

/* One wait; no item twice in it. */
static int wait_some(struct epoll_event *ev, int max, int timeout)
{
	int n = epoll_wait(t.ep, ev, max, timeout);

	for (int i = 0; i < n; i++)
		for (int k = 0; k < i; k++)
			if (ev[i].data.u64 == ev[k].data.u64)
				fail("an item twice in one wait", (int)(ev[i].data.u64 % FILES), i,
				     k);
	return n;
}

static void *producer(void *arg)
{
	uint64_t state = seed * 1000 + (uintptr_t)arg;

	while (!load(&t.stop)) {
		for (int i = 0; i < 16; i++)
			produce(rnd(&state) % FILES);
		if (!(rnd(&state) % 8))
			sched_yield();
		if (!(rnd(&state) % 64))
			usleep(100);
	}
	return NULL;
}

/* --- level -------------------------------------------------------------------------- */

/* Never back: a thread may be stopped for long before it says what it saw. */
static void seen_at(int file, uint64_t now)
{
	uint64_t was = load(&t.seen[file]);

	while (was < now && !__atomic_compare_exchange_n(&t.seen[file], &was, now, false,
							 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void *looker(void *arg)
{
	uint64_t state = seed * 2000 + (uintptr_t)arg;
	struct epoll_event ev[FILES];

	while (!load(&t.stop)) {
		int max = 1 + rnd(&state) % 3, n = wait_some(ev, max, 0);
		uint64_t now;

		if (n != max) {
			fail("files are ready and a look finds fewer", -1, n, max);
			break;
		}
		now = add(&t.returned, n) + n;
		for (int i = 0; i < n; i++)
			seen_at(ev[i].data.u64, now);
	}
	return NULL;
}

/* A thread that is stopped between its wait and the count makes others look late. */
static void *fairness(void *arg)
{
	(void)arg;
	while (!load(&t.stop)) {
		uint64_t now = load(&t.returned);

		usleep(20000);
		if (load(&t.returned) - now < 1000 * FILES)
			continue;
		for (int i = 0; i < FILES; i++)
			if (load(&t.seen[i]) + 3 * FILES * WORKERS < now)
				fail("a ready file does not get its turn", i, load(&t.seen[i]),
				     now);
	}
	return NULL;
}

/* --- edges -------------------------------------------------------------------------- */

static void *edge_taker(void *arg)
{
	uint64_t state = seed * 3000 + (uintptr_t)arg;
	struct epoll_event ev[FILES];

	for (;;) {
		bool quiet = load(&t.quiet);
		int n = wait_some(ev, 1 + rnd(&state) % 4, quiet ? 50 : (int)(rnd(&state) % 3));

		for (int i = 0; i < n; i++) {
			int file = ev[i].data.u64 % FILES;
			uint64_t reported = add(&t.reported[file], 1) + 1;

			/* Reported for a change or an arming, each at most once. */
			if (reported > load(&t.written[file]) + load(&t.armed[file]))
				fail("more events than changes", file, reported,
				     load(&t.written[file]) + load(&t.armed[file]));
			add(&t.taken[file], drain(file));
		}
		if (quiet && n <= 0)
			return NULL;
	}
}

/* A MOD beside events loses none (EP-MOD-07), and neither does DEL with ADD. */
static void *changer(void *arg)
{
	uint64_t state = seed * 4000 + (uintptr_t)arg;

	while (!load(&t.stop)) {
		int file = rnd(&state) % FILES;

		add(&t.armed[file], 1);
		if (rnd(&state) % 4) {
			ctl(EPOLL_CTL_MOD, file, EPOLLIN | EPOLLET, 0);
		} else {
			ctl(EPOLL_CTL_DEL, file, 0, 0);
			ctl(EPOLL_CTL_ADD, file, EPOLLIN | EPOLLET, 0);
		}
		if (!(rnd(&state) % 4))
			usleep(50);
	}
	return NULL;
}

static void nothing_left(void)
{
	for (int i = 0; i < FILES; i++) {
		uint64_t left = drain(i);

		if (left || t.taken[i] != t.written[i])
			fail("written and not reported", i, t.written[i] - t.taken[i], left);
	}
}

/* --- oneshot ------------------------------------------------------------------------ */

static void *owner(void *arg)
{
	uint64_t state = seed * 5000 + (uintptr_t)arg;
	struct epoll_event ev[FILES];

	for (;;) {
		bool quiet = load(&t.quiet);
		int n = wait_some(ev, 1 + rnd(&state) % 4, quiet ? 50 : (int)(rnd(&state) % 3));

		for (int i = 0; i < n; i++) {
			int file = ev[i].data.u64 % FILES;

			if (add(&t.owned[file], 1))
				fail("delivered while it is disarmed", file, load(&t.owned[file]),
				     0);
			add(&t.taken[file], drain(file));
			if (!(rnd(&state) % 16))
				sched_yield();
			add(&t.owned[file], (uint32_t)-1);
			ctl(EPOLL_CTL_MOD, file, EPOLLIN | EPOLLONESHOT, 0);
		}
		if (quiet && n <= 0)
			return NULL;
	}
}

/* --- woken -------------------------------------------------------------------------- */

#define FOR_EVER 20000
#define TOO_LONG_MS 5000

static void *sleeper(void *arg)
{
	struct epoll_event ev[FILES];

	(void)arg;
	add(&t.sleepers, 1);
	while (!load(&t.called)) {
		int n = wait_some(ev, 1, FOR_EVER);

		for (int i = 0; i < n; i++)
			add(&t.taken[ev[i].data.u64], drain(ev[i].data.u64));
	}
	add(&t.sleepers, -1);
	return NULL;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

/* Waits for the answer: there is nobody else whose event could wake a sleeper that was missed. */
static void *caller(void *arg)
{
	uint64_t state = seed * 8000 + (uintptr_t)arg;

	while (!load(&t.stop)) {
		int file = rnd(&state) % FILES;
		int64_t start = now_ms();

		if (rnd(&state) % 2)
			usleep(rnd(&state) % 200);
		produce(file);
		while (load(&t.taken[file]) != load(&t.written[file])) {
			if (now_ms() - start > TOO_LONG_MS) {
				fail("nobody is woken", file, load(&t.taken[file]),
				     load(&t.written[file]));
				break;
			}
			sched_yield();
		}
	}
	store(&t.called, true);
	while (load(&t.sleepers)) {
		produce(0);
		usleep(1000);
	}
	return NULL;
}

/* --- removed ------------------------------------------------------------------------ */

static void *remover(void *arg)
{
	uint64_t state = seed * 6000 + (uintptr_t)arg;
	int part = (int)((uintptr_t)arg % 2);

	for (uint64_t generation = 1; !load(&t.stop); generation++) {
		int file = part + 2 * (int)(rnd(&state) % (FILES / 2));
		uint32_t edge = rnd(&state) % 2 ? EPOLLET : 0;

		ctl(EPOLL_CTL_ADD, file, EPOLLIN | edge, generation);
		if (!(rnd(&state) % 4))
			sched_yield();
		if (ctl(EPOLL_CTL_DEL, file, 0, 0) < 0)
			fail("DEL of an item that is there", file, errno, 0);
		store(&t.dead[file], generation);
	}
	return NULL;
}

static void *late_looker(void *arg)
{
	uint64_t state = seed * 7000 + (uintptr_t)arg;
	struct epoll_event ev[FILES];
	uint64_t dead[FILES];

	while (!load(&t.stop)) {
		int n;

		for (int i = 0; i < FILES; i++)
			dead[i] = load(&t.dead[i]);
		n = wait_some(ev, 1 + rnd(&state) % 4, rnd(&state) % 2);
		for (int i = 0; i < n; i++) {
			int file = ev[i].data.u64 % FILES;

			if (ev[i].data.u64 / FILES <= dead[file])
				fail("an event after DEL has returned", file,
				     ev[i].data.u64 / FILES, dead[file]);
		}
	}
	return NULL;
}

/* --- all ---------------------------------------------------------------------------- */

struct invariant {
	const char *name;
	/* Of the items at the beginning; 0: there are none. */
	uint32_t events;
	/* Every second file is a pipe. */
	bool pipes;
	void *(*threads[3])(void *);
	int count[3];
	void (*after)(void);
};

static const struct invariant invariants[] = {
	{"level", EPOLLIN, false, {looker, fairness}, {WORKERS, 1}, NULL},
	{"level, mixed", EPOLLIN, true, {looker, fairness}, {WORKERS, 1}, NULL},
	{"edges",
	 EPOLLIN | EPOLLET,
	 false,
	 {producer, edge_taker, changer},
	 {2, 3, 1},
	 nothing_left},
	{"edges, mixed",
	 EPOLLIN | EPOLLET,
	 true,
	 {producer, edge_taker, changer},
	 {2, 3, 1},
	 nothing_left},
	{"oneshot", EPOLLIN | EPOLLONESHOT, false, {producer, owner}, {2, 3}, nothing_left},
	{"oneshot, mixed", EPOLLIN | EPOLLONESHOT, true, {producer, owner}, {2, 3}, nothing_left},
	{"woken", EPOLLIN | EPOLLET, false, {sleeper, caller}, {3, 1}, NULL},
	{"woken, mixed", EPOLLIN | EPOLLET, true, {sleeper, caller}, {3, 1}, NULL},
	{"removed", 0, false, {producer, late_looker, remover}, {1, 3, 2}, NULL},
	{"removed, mixed", 0, true, {producer, late_looker, remover}, {1, 3, 2}, NULL},
};

static bool run(const struct invariant *v)
{
	struct timespec nap = {.tv_sec = (time_t)seconds,
			       .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	pthread_t id[16], last[16];
	int n = 0, nlast = 0;

	memset(&t, 0, sizeof(t));
	t.ep = epoll_create1(0);
	for (int i = 0; i < FILES; i++) {
		int p[2] = {-1, -1};

		if (v->pipes && i % 2 && pipe2(p, O_NONBLOCK) < 0)
			return false;
		t.fd[i] = p[0] >= 0 ? p[0] : eventfd(0, EFD_NONBLOCK);
		t.in[i] = p[1] >= 0 ? p[1] : t.fd[i];
		if (!strncmp(v->name, "level", 5))
			produce(i);
		t.armed[i] = 1;
		if (v->events && ctl(EPOLL_CTL_ADD, i, v->events, 0) < 0)
			return false;
	}
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < v->count[k]; i++)
			pthread_create(v->threads[k] == edge_taker || v->threads[k] == owner
					       ? &last[nlast++]
					       : &id[n++],
				       NULL, v->threads[k], (void *)(uintptr_t)i);
	nanosleep(&nap, NULL);
	store(&t.stop, true);
	while (n)
		pthread_join(id[--n], NULL);
	store(&t.quiet, true);
	while (nlast)
		pthread_join(last[--nlast], NULL);
	if (v->after && !t.wrong[0])
		v->after();
	for (int i = 0; i < FILES; i++) {
		close(t.fd[i]);
		if (t.in[i] != t.fd[i])
			close(t.in[i]);
	}
	close(t.ep);
	return !t.wrong[0];
}

int main(int argc, char **argv)
{
	int n = sizeof(invariants) / sizeof(invariants[0]), bad = 0;

	if (argc > 1)
		seconds = atof(argv[1]);
	else if (getenv("POLLUX_TEST_LONG"))
		seconds = 20;
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0);
	for (int i = 0; i < n; i++) {
		bool good;

		if (argc > 3 && strcmp(argv[3], invariants[i].name))
			continue;
		good = run(&invariants[i]);
		bad += !good;
		if (!good)
			printf("# seed %llu: %s\n", (unsigned long long)seed, t.wrong);
		printf("%s %d - %s\n", good ? "ok" : "not ok", i + 1, invariants[i].name);
		fflush(stdout);
	}
	printf("1..%d\n", n);
	return bad != 0;
}
