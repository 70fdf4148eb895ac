/* SPDX-License-Identifier: MIT */
/*
 * The scheduler, and the host operations by which fibres wait in epolls.
 *
 * There is no fibre or stack for the scheduler itself: who cannot go on looks for the next one, and
 * sleeps for the whole thread if there is none. If it turns out to be itself, nothing is switched.
 *
 * All lists belong to the one thread that the fibres run in. Others come in by unpark_one alone:
 * that counts a ring at the host of the epoll, and puts the host on a stack that this thread takes
 * as a whole. A ring that finds no fibre parked is dropped: who parks later sees the bell.
 */
#include "scheduler.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "switch.h"

#define STACK_SIZE (128u << 10)
/* Between two looks at the real clock while fibres can run. */
#define HOPS_PER_LOOK 64

struct fibre {
	struct stack stack;
	/* In the queue of those that can run, among those parked at a host, or among free ones. */
	struct fibre *next, **link;
	/* When it goes on at the latest, and its place in the heap of deadlines; -1: in none. */
	int64_t deadline;
	int place;
	/* Earlier comes first among equal deadlines. */
	uint64_t since;
	bool late;
	struct host *host;
	void (*fn)(void *arg);
	void *arg;
};

/* What an epoll knows as its host: one for each, as a ring is for one that waits in this one. */
struct host {
	struct scheduler *s;
	struct fibre *parked, **last;
	/* Atomic: rings that have not been taken, and GONE when the epoll is. */
	uint32_t rings;
	struct host *next;
};

#define GONE (1u << 31)

struct scheduler {
	struct fibre *first, **last;
	struct fibre *current;
	/* Who called scheduler_run. */
	struct fibre outside;
	/* Those that have ended, to be used again. */
	struct fibre *unused;
	struct fibre **heap;
	int deadlines, room;
	int fibres;
	/* Atomic: epolls that are not gone. */
	int hosts;
	enum scheduler_clock clock;
	int64_t now;
	uint64_t hops, arrivals;
	/* Atomic: hosts with rings; whether the thread sleeps; what it sleeps on. */
	struct host *rung;
	uint32_t asleep, bell;
};

/* Of this thread. */
static __thread struct scheduler *mine;

static int64_t real_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

int64_t scheduler_now(struct scheduler *s)
{
	/* unpark_one's and now's callers may be other threads. */
	return s->clock == CLOCK_REAL ? real_now() : __atomic_load_n(&s->now, __ATOMIC_RELAXED);
}

uint64_t scheduler_hops(const struct scheduler *s)
{
	return s->hops;
}

/* --- Deadlines: a heap. ---------------------------------------------------------------------- */

static bool sooner(const struct fibre *a, const struct fibre *b)
{
	return a->deadline != b->deadline ? a->deadline < b->deadline : a->since < b->since;
}

static void heap_put(struct scheduler *s, int at, struct fibre *f)
{
	s->heap[at] = f;
	f->place = at;
}

static void heap_up(struct scheduler *s, int at, struct fibre *f)
{
	for (; at && sooner(f, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap_put(s, at, s->heap[(at - 1) / 2]);
	heap_put(s, at, f);
}

static void heap_down(struct scheduler *s, int at, struct fibre *f)
{
	for (;;) {
		int child = 2 * at + 1;

		if (child + 1 < s->deadlines && sooner(s->heap[child + 1], s->heap[child]))
			child++;
		if (child >= s->deadlines || !sooner(s->heap[child], f))
			break;
		heap_put(s, at, s->heap[child]);
		at = child;
	}
	heap_put(s, at, f);
}

/* There is room: for each fibre one place. */
static void deadline_add(struct scheduler *s, struct fibre *f, int64_t deadline)
{
	f->deadline = deadline;
	f->since = ++s->arrivals;
	heap_up(s, s->deadlines++, f);
}

static void deadline_remove(struct scheduler *s, struct fibre *f)
{
	struct fibre *last;
	int at = f->place;

	if (at < 0)
		return;
	f->place = -1;
	last = s->heap[--s->deadlines];
	if (last == f)
		return;
	if (at && sooner(last, s->heap[(at - 1) / 2]))
		heap_up(s, at, last);
	else
		heap_down(s, at, last);
}

/* --- Who can run. ---------------------------------------------------------------------------- */

static void make_ready(struct scheduler *s, struct fibre *f)
{
	f->next = NULL;
	*s->last = f;
	s->last = &f->next;
}

static void host_add(struct host *h, struct fibre *f)
{
	f->host = h;
	f->next = NULL;
	f->link = h->last;
	*h->last = f;
	h->last = &f->next;
}

static void host_remove(struct fibre *f)
{
	struct host *h = f->host;

	if (!h)
		return;
	*f->link = f->next;
	if (f->next)
		f->next->link = f->link;
	else
		h->last = f->link;
	f->host = NULL;
}

/* Those who came first go first, both of the hosts and of the fibres. */
static void take_rings(struct scheduler *s)
{
	struct host *h = __atomic_exchange_n(&s->rung, NULL, __ATOMIC_ACQ_REL), *in_order = NULL;
	struct host *next;

	for (; h; h = next) {
		next = h->next;
		h->next = in_order;
		in_order = h;
	}
	for (h = in_order; h; h = next) {
		uint32_t rings;

		/* From the exchange on it may be pushed again. */
		next = h->next;
		rings = __atomic_exchange_n(&h->rings, 0, __ATOMIC_ACQ_REL);
		for (uint32_t i = rings & ~GONE; i && h->parked; i--) {
			struct fibre *f = h->parked;

			host_remove(f);
			deadline_remove(s, f);
			make_ready(s, f);
		}
		if (rings & GONE) {
			free(h);
			__atomic_fetch_sub(&s->hosts, 1, __ATOMIC_RELEASE);
		}
	}
}

static void take_late(struct scheduler *s)
{
	int64_t now = scheduler_now(s);

	while (s->deadlines && s->heap[0]->deadline <= now) {
		struct fibre *f = s->heap[0];

		deadline_remove(s, f);
		host_remove(f);
		f->late = true;
		make_ready(s, f);
	}
}

/* The whole thread, until somebody rings or the next deadline. */
static void sleep_all(struct scheduler *s)
{
	uint32_t seen = __atomic_load_n(&s->bell, __ATOMIC_ACQUIRE);
	struct timespec t = {.tv_sec = LONG_MAX / 2000000000};

	if (s->deadlines) {
		t.tv_sec = s->heap[0]->deadline / 1000000000;
		t.tv_nsec = s->heap[0]->deadline % 1000000000;
	}
	/* Who rings pushes, and then looks whether the thread sleeps. */
	__atomic_exchange_n(&s->asleep, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&s->rung, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &s->bell, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, &t, NULL,
			FUTEX_BITSET_MATCH_ANY);
	__atomic_store_n(&s->asleep, 0, __ATOMIC_RELAXED);
}

static struct fibre *next_ready(struct scheduler *s)
{
	struct fibre *f;

	for (;;) {
		if (__atomic_load_n(&s->rung, __ATOMIC_RELAXED))
			take_rings(s);
		if (s->deadlines && (!s->first || s->hops % HOPS_PER_LOOK == 0) &&
		    s->clock == CLOCK_REAL)
			take_late(s);
		f = s->first;
		if (f)
			break;
		if (s->clock == CLOCK_REAL) {
			sleep_all(s);
		} else if (s->deadlines) {
			__atomic_store_n(&s->now, s->heap[0]->deadline, __ATOMIC_RELAXED);
			take_late(s);
		} else {
			/* Nobody outside can change that: all happens here. */
			fprintf(stderr, "fibres: all wait for one another\n");
			abort();
		}
	}
	s->first = f->next;
	if (!s->first)
		s->last = &s->first;
	return f;
}

/* The current fibre does not go on now. */
static void let_others_run(struct scheduler *s)
{
	struct fibre *from = s->current, *to = next_ready(s);

	if (to == from)
		return;
	s->hops++;
	s->current = to;
	stack_switch(&from->stack, &to->stack);
}

void fibre_yield(void)
{
	make_ready(mine, mine->current);
	let_others_run(mine);
}

void fibre_sleep(int64_t ns)
{
	deadline_add(mine, mine->current, scheduler_now(mine) + ns);
	let_others_run(mine);
}

/* --- The host operations. -------------------------------------------------------------------- */

static int host_park(void *arg, uint32_t *bell, int64_t deadline)
{
	struct host *h = arg;
	struct scheduler *s = h->s;
	struct fibre *f = s->current;

	if (pollux_bell_rung(bell))
		return 0;
	f->late = false;
	host_add(h, f);
	if (deadline >= 0)
		deadline_add(s, f, deadline);
	let_others_run(s);
	return f->late ? -ETIMEDOUT : 0;
}

/* By the first one that finds no rings. */
static void host_push(struct scheduler *s, struct host *h)
{
	h->next = __atomic_load_n(&s->rung, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&s->rung, &h->next, h, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED))
		;
}

/* Any thread, and signal handlers: no lock. */
static void host_unpark_one(void *arg, uint32_t *bell)
{
	struct host *h = arg;
	struct scheduler *s = h->s;

	(void)bell;
	if (__atomic_fetch_add(&h->rings, 1, __ATOMIC_ACQ_REL) == 0)
		host_push(s, h);
	if (__atomic_load_n(&s->asleep, __ATOMIC_SEQ_CST)) {
		__atomic_fetch_add(&s->bell, 1, __ATOMIC_RELEASE);
		syscall(SYS_futex, &s->bell, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
	}
}

static int64_t host_now(void *arg)
{
	return scheduler_now(((struct host *)arg)->s);
}

/*
 * Nobody calls the host any more, but it may be on the stack of those that have rung, and this may
 * be another thread: whoever takes it from there frees it.
 */
static void host_released(void *arg)
{
	struct host *h = arg;

	if (__atomic_fetch_or(&h->rings, GONE, __ATOMIC_ACQ_REL) == 0)
		host_push(h->s, h);
}

int scheduler_ep_new(struct scheduler *s, struct pollux_ep **out)
{
	struct host *h = calloc(1, sizeof(*h));
	struct pollux_host host = {
		.size = sizeof(host),
		/* The thread has others to run: look no longer than once. */
		.look_ns = 0,
		.park = host_park,
		.unpark_one = host_unpark_one,
		.now = host_now,
		.released = host_released,
		.arg = h,
	};
	struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	int r;

	if (!h)
		return -ENOMEM;
	h->s = s;
	h->last = &h->parked;
	r = pollux_ep_new(out, &attr);
	if (r)
		free(h);
	else
		__atomic_fetch_add(&s->hosts, 1, __ATOMIC_RELAXED);
	return r;
}

/* --- The life of a fibre. -------------------------------------------------------------------- */

static void fibre_main(void)
{
	struct scheduler *s = mine;
	struct fibre *f = s->current;

	stack_entered(&s->outside.stack);
	/* One that has ended goes on here when it is used for another function. */
	for (;;) {
		f->fn(f->arg);
		f->next = s->unused;
		s->unused = f;
		if (--s->fibres == 0)
			make_ready(s, &s->outside);
		let_others_run(s);
	}
}

int scheduler_spawn(struct scheduler *s, void (*fn)(void *arg), void *arg)
{
	struct fibre *f;

	if (s->fibres >= s->room) {
		int room = s->room ? s->room * 2 : 64;
		struct fibre **heap = realloc(s->heap, (size_t)room * sizeof(struct fibre *));

		if (!heap)
			return -ENOMEM;
		s->heap = heap;
		s->room = room;
	}
	f = s->unused;
	if (f) {
		s->unused = f->next;
	} else {
		f = calloc(1, sizeof(*f));
		if (!f || stack_new(&f->stack, STACK_SIZE, fibre_main)) {
			free(f);
			return -ENOMEM;
		}
	}
	f->fn = fn;
	f->arg = arg;
	f->place = -1;
	s->fibres++;
	make_ready(s, f);
	return 0;
}

void scheduler_run(struct scheduler *s)
{
	if (!s->fibres)
		return;
	mine = s;
	stack_adopt(&s->outside.stack);
	s->current = &s->outside;
	/* Comes back when the last one has ended. */
	let_others_run(s);
	mine = NULL;
}

struct scheduler *scheduler_new(enum scheduler_clock clock)
{
	struct scheduler *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->last = &s->first;
	s->clock = clock;
	s->outside.place = -1;
	return s;
}

void scheduler_free(struct scheduler *s)
{
	/* The end of an epoll comes some time after its last reference has gone. */
	pollux_quiesce();
	take_rings(s);
	if (__atomic_load_n(&s->hosts, __ATOMIC_ACQUIRE)) {
		fprintf(stderr, "fibres: an epoll of the scheduler is still there\n");
		abort();
	}
	while (s->unused) {
		struct fibre *f = s->unused;

		s->unused = f->next;
		stack_free(&f->stack);
		free(f);
	}
	free(s->heap);
	free(s);
}
