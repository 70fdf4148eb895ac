/* SPDX-License-Identifier: MIT */
/*
 * io_destroy meets everything else that is done to a context, and itself. One of those
 * who destroy a context does so, and returns when nobody is inside any more; whoever
 * sleeps returns; nothing that belongs to one context ever comes out of another, also
 * when that is made at the address of the first.
 */
#include "aio.h"

/* A thread that makes one call on a context and may be stopped on its way. */
struct call {
	struct thread t;
	struct gate g;
	const char *point;
	aio_context_t ctx;
	/* What it does: submit r, or wait for one event. */
	struct req *r;
	bool destroys;
	struct io_event ev;
	int result, error;
};

static void call_main(struct thread *t)
{
	struct call *c = t->arg;
	struct iocb *list;

	if (c->point)
		gate_arm(&c->g, c->point);
	if (c->destroys) {
		c->result = pollux_io_destroy(c->ctx);
	} else if (c->r) {
		list = &c->r->cb;
		c->result = pollux_io_submit(c->ctx, 1, &list);
	} else {
		c->result = pollux_io_getevents(c->ctx, 1, 1, &c->ev, NULL);
	}
	c->error = c->result < 0 ? errno : 0;
}

/* Returns when the thread stands at the point. */
static void call_start(struct call *c, const char *point)
{
	c->point = point;
	c->g = (struct gate){0};
	thread_start(&c->t, call_main, c);
	if (point)
		assert_true(gate_reached(&c->g));
}

static void call_go(struct call *c)
{
	gate_open(&c->g);
	thread_join(&c->t);
}

static int new_counter(unsigned int value)
{
	int fd = eventfd(value, EFD_NONBLOCK | EFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void expect_event(aio_context_t ctx, struct req *r)
{
	struct timespec soon = {SOON_MS / 1000, 0};
	struct io_event ev = {0};

	assert_int_equal(pollux_io_getevents(ctx, 1, 1, &ev, &soon), 1);
	assert_true(req_event(&ev) == r);
	assert_false(torture_failed);
}

static void submit_ok(aio_context_t ctx, struct req *r)
{
	struct iocb *list = &r->cb;

	assert_int_equal(pollux_io_submit(ctx, 1, &list), 1);
}

/*
 * A call that makes its context the kernel's and is held up there, while the context is destroyed
 * and another is made in the meantime, perhaps at the same addresses.
 */
static void late_call(struct call *c, const char *point, int ready)
{
	struct call destroyer = {.ctx = c->ctx, .destroys = true};
	struct req r;
	aio_context_t next;

	call_start(c, point);
	call_start(&destroyer, NULL);
	/* It waits until the context is one thing or the other. */
	assert_true(thread_in_steps(&destroyer.t));
	next = aio_new(4);
	assert_int_equal(write(ready, &(uint64_t){1}, 8), 8);
	req_init(&r, -1, 0, ready);
	req_poll(&r);
	submit_ok(next, &r);
	call_go(c);
	thread_join(&destroyer.t);
	assert_int_equal(destroyer.result, 0);
	expect_event(next, &r);
	assert_int_equal(pollux_io_destroy(next), 0);
}

static void late_calls(void **state)
{
	int ready = new_counter(0), never = new_counter(0);

	(void)state;
	aio_begin();
	points_delay(false);
	for (int round = 0; round < 3; round++) {
		struct call sleeper = {.ctx = aio_new(4)};
		struct req r;
		struct call submitter = {.ctx = aio_new(4), .r = &r};

		late_call(&sleeper, "aio_hand_over", ready);
		assert_int_equal(sleeper.result, -1);
		assert_int_equal(sleeper.error, EINVAL);
		req_init(&r, -1, 0, never);
		req_poll(&r);
		late_call(&submitter, "aio_hand_over", ready);
		assert_true(submitter.result == 1 || submitter.error == EINVAL);
	}
	close(ready);
	close(never);
}

/* A buffer is not touched after io_destroy returned, though the call was inside. */
static void waits_for_calls(void **state)
{
	struct call submitter = {0}, destroyer = {.destroys = true};
	int fd = aio_file();
	struct req r;

	(void)state;
	aio_begin();
	points_delay(false);
	req_init(&r, fd, 0, -1);
	req_transfer(&r);
	submitter.ctx = destroyer.ctx = aio_new(4);
	submitter.r = &r;
	call_start(&submitter, "aio_inline");
	call_start(&destroyer, NULL);
	assert_true(thread_asleep(&destroyer.t));
	/* Gone for everybody, although it is still being waited for (AIO-DESTROY-01). */
	errno = 0;
	assert_int_equal(pollux_io_destroy(destroyer.ctx), -1);
	assert_int_equal(errno, EINVAL);
	assert_false(thread_done(&destroyer.t));
	call_go(&submitter);
	thread_join(&destroyer.t);
	assert_int_equal(submitter.result, 1);
	assert_int_equal(destroyer.result, 0);
	close(fd);
}

/* --- everything at once ---------------------------------------------------------------- */

enum role { DESTROY_A, DESTROY_B, SLEEP_A, SLEEP_B, SUBMIT, POLL, TAKE, ROLES };

#define R(x) (1u << (x))

struct shared {
	struct meet m;
	aio_context_t ctx;
	struct req r[2];
	unsigned long rounds, inside, woken;
	int fd, never, won, quit;
};

struct part {
	struct shared *s;
	enum role role;
};

static void own_event(struct shared *s, const struct io_event *ev)
{
	struct req *r = (struct req *)(uintptr_t)ev->data;

	if (r != &s->r[0] && r != &s->r[1])
		broken("an event of another context");
	else
		(void)req_event(ev);
}

static void one_call(struct shared *s, enum role role)
{
	struct timespec none = {0};
	struct io_event ev[2];
	struct iocb *list;
	struct req *r;
	int n;

	errno = 0;
	switch (role) {
	case DESTROY_A:
	case DESTROY_B:
		if (pollux_io_destroy(s->ctx) == 0)
			atomic_add(&s->won, 1);
		else if (errno != EINVAL)
			broken("io_destroy: %s", strerror(errno));
		break;
	case SUBMIT:
	case POLL:
		r = &s->r[role == POLL];
		if (role == POLL)
			req_poll(r);
		else
			req_transfer(r);
		list = &r->cb;
		n = pollux_io_submit(s->ctx, 1, &list);
		if (n != 1 && errno != EINVAL)
			broken("io_submit: %s", strerror(errno));
		if (n == 1 && role == SUBMIT)
			atomic_add(&s->inside, 1);
		break;
	default:
		n = pollux_io_getevents(s->ctx, role == TAKE ? 0 : 1, 2, ev,
					role == TAKE ? &none : NULL);
		if (n < 0 && errno != EINVAL)
			broken("io_getevents: %s", strerror(errno));
		if (!n && role != TAKE)
			broken("a wait without limit returned 0");
		for (int i = 0; i < n; i++)
			own_event(s, &ev[i]);
		if (role != TAKE)
			atomic_add(&s->woken, 1);
	}
}

static void part(struct thread *t)
{
	struct part *p = t->arg;
	struct shared *s = p->s;

	while (meet(&s->m) && !atomic_get(&s->quit)) {
		one_call(s, p->role);
		if (!meet(&s->m))
			return;
	}
}

static void run(unsigned int roles, int per_test)
{
	struct shared s = {.m.n = 1, .fd = aio_file(), .never = new_counter(0)};
	struct part p[ROLES];
	struct thread t[ROLES];
	int64_t start = now_ns();
	unsigned long enough = roles & (R(SLEEP_A) | R(POLL)) ? 5 : 50;
	int n = 0;

	aio_begin();
	for (int role = 0; role < ROLES; role++) {
		if (!(roles & R(role)))
			continue;
		p[n] = (struct part){&s, role};
		s.m.n++;
		n++;
	}
	for (int i = 0; i < n; i++)
		thread_start(&t[i], part, &p[i]);
	while (torture_part_until(start, per_test, s.rounds > enough)) {
		s.ctx = aio_new(8);
		s.won = 0;
		req_init(&s.r[0], s.fd, 1, -1);
		req_init(&s.r[1], -1, 0, s.never);
		if (!meet(&s.m) || !meet(&s.m))
			break;
		if (s.won != 1)
			broken("round %lu: %d destroyed it", s.rounds, s.won);
		errno = 0;
		if (pollux_io_destroy(s.ctx) != -1 || errno != EINVAL)
			broken("a context that was destroyed is there");
		s.rounds++;
	}
	atomic_set(&s.quit, 1);
	(void)meet(&s.m);
	torture_end(t, n);
	print_message("roles %#x: %lu rounds, %lu submitted in time, %lu waits ended\n", roles,
		      s.rounds, s.inside, s.woken);
	assert_true(s.rounds > enough);
	close(s.fd);
	close(s.never);
}

static void one_wins(void **state)
{
	(void)state;
	run(R(DESTROY_A) | R(DESTROY_B), 2);
	run(R(DESTROY_A) | R(DESTROY_B) | R(SUBMIT) | R(TAKE), 2);
}

static void ends_sleep(void **state)
{
	(void)state;
	run(R(DESTROY_A) | R(SLEEP_A) | R(SLEEP_B), 2);
	run(R(DESTROY_A) | R(DESTROY_B) | R(SLEEP_A) | R(SLEEP_B) | R(SUBMIT), 2);
}

static void ends_polls(void **state)
{
	(void)state;
	run(R(DESTROY_A) | R(POLL) | R(TAKE), 2);
	run((1u << ROLES) - 1, 2);
}

/* --- each thread has contexts of its own, and none meets another's ------------------------- */

#define OWNERS 4
#define OWN 3

static int owned_fd, owned_ready;
static unsigned long owned_made;

static void owner(struct thread *t)
{
	uint32_t rng = (uint32_t)t->tid;
	uint64_t block = (uint64_t)(size_t)t->arg;

	while (!stopping()) {
		aio_context_t ctx = 0;
		struct req r[OWN];
		int kernel = rnd(&rng) % 2, flying = 0;

		if (pollux_io_setup(8, &ctx) != 0) {
			broken("io_setup: %s", strerror(errno));
			return;
		}
		for (int i = 0; i < OWN; i++) {
			struct iocb *list = &r[i].cb;

			req_init(&r[i], owned_fd, block * OWN + (uint64_t)i, owned_ready);
			r[i].version = atomic_get(&owned_made);
			if (kernel && i == 1)
				req_poll(&r[i]);
			else
				req_transfer(&r[i]);
			if (pollux_io_submit(ctx, 1, &list) != 1)
				broken("io_submit: %s", strerror(errno));
			flying++;
		}
		while (flying && !stopping()) {
			struct io_event ev[OWN];
			int n = pollux_io_getevents(ctx, kernel ? 1 : 0, OWN, ev, NULL);

			if (n < (kernel ? 1 : 0))
				broken("io_getevents: %d", n);
			for (int i = 0; i < n; i++) {
				struct req *x = (struct req *)(uintptr_t)ev[i].data;

				if (x < r || x >= r + OWN)
					broken("an event of another context");
				else if (ev[i].obj != (uintptr_t)&x->cb ||
					 atomic_get(&x->state) == IDLE)
					broken("an event of nothing");
				else
					atomic_set(&x->state, IDLE);
			}
			flying -= n > 0 ? n : 0;
			if (rnd(&rng) % 4 == 0)
				break;
		}
		if (pollux_io_destroy(ctx) != 0)
			broken("io_destroy: %s", strerror(errno));
		atomic_add(&owned_made, 1);
	}
}

static void apart(void **state)
{
	struct thread t[OWNERS];
	int64_t start = now_ns();

	(void)state;
	aio_begin();
	owned_fd = aio_file();
	owned_ready = new_counter(1);
	owned_made = 0;
	for (size_t i = 0; i < OWNERS; i++)
		thread_start(&t[i], owner, (void *)i);
	while (torture_until(start, atomic_get(&owned_made) > 20))
		sleep_ms(5);
	torture_end(t, OWNERS);
	print_message("%lu contexts\n", owned_made);
	assert_true(owned_made > 20);
	close(owned_fd);
	close(owned_ready);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(waits_for_calls), TEST(late_calls), TEST(one_wins),
		TEST(ends_sleep),      TEST(ends_polls), TEST(apart),
	};

	return RUN(tests);
}
