/* SPDX-License-Identifier: MIT */
/*
 * From a pointer to a context, while contexts come and go and the table grows: a context
 * that is there is found, one that has gone is not, and no pointer whatever finds another
 * or does harm.
 */
#include "aio.h"

#define CELLS 96
#define CHANGERS 2
#define CALLERS 3

struct cell {
	/* Even: ctx is a context for as long as this number stays. */
	unsigned long version;
	aio_context_t ctx;
	int changing;
};

struct shared {
	struct cell cell[CELLS];
	/* What is not a ring: a page that looks like one, and one that is not there. */
	uint32_t *fake;
	char *hole;
	unsigned long made, found, gone, garbage;
};

static void changer(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t rng = (uint32_t)t->tid;

	while (!stopping()) {
		struct cell *c = &s->cell[rnd(&rng) % CELLS];
		aio_context_t ctx = 0;

		if (__atomic_exchange_n(&c->changing, 1, __ATOMIC_SEQ_CST))
			continue;
		if (atomic_get(&c->version) & 1) {
			if (pollux_io_setup(1 + rnd(&rng) % 100, &ctx) != 0)
				broken("io_setup: %s", strerror(errno));
			atomic_set(&c->ctx, ctx);
			atomic_add(&c->version, 1);
			atomic_add(&s->made, 1);
		} else {
			atomic_add(&c->version, 1);
			if (pollux_io_destroy(atomic_get(&c->ctx)) != 0)
				broken("io_destroy: %s", strerror(errno));
		}
		atomic_set(&c->changing, 0);
	}
}

/* 0 or the error, by a call that changes nothing. */
static int look(aio_context_t ctx, uint32_t how)
{
	struct timespec none = {0};
	struct io_event ev;
	int r;

	errno = 0;
	switch (how % 4) {
	case 0:
		r = pollux_io_submit(ctx, 0, NULL);
		break;
	case 1:
		r = pollux_io_getevents(ctx, 0, 1, &ev, NULL);
		break;
	case 2:
		r = pollux_io_pgetevents(ctx, 0, 1, &ev, &none, NULL);
		break;
	default:
		r = pollux_io_getevents(ctx, 0, 0, NULL, &none);
	}
	if (r != 0 && r != -1)
		broken("a call that does nothing returned %d", r);
	return r ? errno : 0;
}

static aio_context_t no_context(struct shared *s, uint32_t *rng)
{
	aio_context_t live = atomic_get(&s->cell[rnd(rng) % CELLS].ctx);

	switch (rnd(rng) % 9) {
	case 0:
		return 0;
	case 1:
		return rnd(rng);
	case 2:
		return ((aio_context_t)rnd(rng) << 32) | rnd(rng);
	case 3:
		return (uintptr_t)s->hole;
	case 4:
		return 0xffffffff81000000ul;
	case 5:
		/* Its id may be that of a context. */
		__atomic_store_n(&s->fake[0], rnd(rng) % (CELLS + 8), __ATOMIC_RELAXED);
		return (uintptr_t)s->fake;
	case 6:
		return (uintptr_t)s->fake + rnd(rng) % 64;
	case 7:
		return live + 1 + rnd(rng) % 4094;
	default:
		return (uintptr_t)&s->hole;
	}
}

static void caller(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t rng = (uint32_t)t->tid;

	while (!stopping()) {
		struct cell *c = &s->cell[rnd(&rng) % CELLS];
		unsigned long version = atomic_get(&c->version);
		aio_context_t ctx = atomic_get(&c->ctx);
		int err;

		if (rnd(&rng) & 1) {
			if (rnd(&rng) % 8 == 0) {
				errno = 0;
				err = pollux_io_destroy(no_context(s, &rng)) ? errno : 0;
			} else {
				err = look(no_context(s, &rng), rnd(&rng));
			}
			if (err != EINVAL)
				broken("a pointer at nothing: %s", strerror(err));
			atomic_add(&s->garbage, 1);
			continue;
		}
		err = look(ctx, rnd(&rng));
		if (err && err != EINVAL)
			broken("%s", strerror(err));
		if (err && !(version & 1) && atomic_get(&c->version) == version)
			broken("a context that is there is not found");
		atomic_add(err ? &s->gone : &s->found, 1);
	}
}

static void come_and_go(void **state)
{
	struct shared *s = calloc(1, sizeof(*s));
	struct thread t[CHANGERS + CALLERS];
	int64_t start = now_ns();
	unsigned long left = 0;

	(void)state;
	assert_non_null(s);
	aio_begin();
	s->fake = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(s->fake != MAP_FAILED && s->hole != MAP_FAILED);
	s->fake[4] = 0xa10a10a1u;
	for (int i = 0; i < CELLS; i++)
		s->cell[i].version = 1;
	for (int i = 0; i < CHANGERS + CALLERS; i++)
		thread_start(&t[i], i < CHANGERS ? changer : caller, s);
	while (torture_until(start, atomic_get(&s->made) > CELLS && atomic_get(&s->found) &&
					    atomic_get(&s->gone) && atomic_get(&s->garbage)))
		sleep_ms(5);
	torture_end(t, CHANGERS + CALLERS);
	for (int i = 0; i < CELLS; i++) {
		if (s->cell[i].version & 1)
			continue;
		left++;
		assert_int_equal(look(s->cell[i].ctx, 1), 0);
		assert_int_equal(pollux_io_destroy(s->cell[i].ctx), 0);
	}
	print_message("%lu made, %lu left; %lu found, %lu gone, %lu pointers at nothing\n", s->made,
		      left, s->found, s->gone, s->garbage);
	assert_true(s->made > CELLS && s->found && s->gone && s->garbage);
	munmap(s->fake, 4096);
	munmap(s->hole, 4096);
	free(s);
}

/*
 * A lookup stands before it looks into the slot, and the table is replaced, or before it
 * enters what it found there, and the context is destroyed.
 */

struct looker {
	struct thread t;
	struct gate g;
	const char *point;
	aio_context_t ctx;
	int err;
};

static void looker_main(struct thread *t)
{
	struct looker *l = t->arg;

	gate_arm(&l->g, l->point);
	l->err = look(l->ctx, 0);
}

static void looker_start(struct looker *l, const char *point, aio_context_t ctx)
{
	memset(l, 0, sizeof(*l));
	l->point = point;
	l->ctx = ctx;
	thread_start(&l->t, looker_main, l);
	assert_true(gate_reached(&l->g));
}

static void stopped_lookups(void **state)
{
	static const char *const points[] = {"aio_lookup_table", "aio_lookup_slot"};
	/* More than one growth, whatever was made before. */
	aio_context_t ctx, made[600];
	struct looker l;

	(void)state;
	aio_begin();
	points_delay(false);
	for (int p = 0; p < 2; p++) {
		ctx = aio_new(4);
		looker_start(&l, points[p], ctx);
		for (int i = 0; i < 600; i++)
			made[i] = aio_new(1);
		gate_open(&l.g);
		thread_join(&l.t);
		assert_int_equal(l.err, 0);

		looker_start(&l, points[p], ctx);
		assert_int_equal(pollux_io_destroy(ctx), 0);
		/* The slot has another one now. */
		ctx = aio_new(4);
		gate_open(&l.g);
		thread_join(&l.t);
		assert_true(l.err == EINVAL || (ctx == l.ctx && p == 0));

		for (int i = 0; i < 600; i++)
			assert_int_equal(pollux_io_destroy(made[i]), 0);
		assert_int_equal(look(ctx, 1), 0);
		assert_int_equal(pollux_io_destroy(ctx), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(come_and_go),
		TEST(stopped_lookups),
	};

	return RUN(tests);
}
