/* SPDX-License-Identifier: MIT */
/*
 * A file turns quiet only while a wake of it has nobody to tell anything new, and
 * whatever changes that ends the quiet, also if the one who sets it is slow.
 */
#include "epoll/engine.h"

#include "torture.h"

static bool quiet(struct pollux_efd *e)
{
	return __atomic_load_n(&pollux_efd_file(e)->word, __ATOMIC_SEQ_CST) & PLX_QUIET;
}

enum change { COLLECT, ANOTHER_WATCH, EPOLL_WATCHED, DEL_AND_ADD, POLL, CHANGES };

/* Makes the change and then asks whether a write is heard of. */
static void change(enum change c, struct pollux_ep *ep, struct pollux_efd *e, bool late,
		   struct stopped *s)
{
	struct pollux_file *f = pollux_efd_file(e);
	struct pollux_ep *other = ep_new();
	uint64_t v;

	switch (c) {
	case COLLECT:
		assert_one(ep, EPOLLIN, 'a');
		break;
	case ANOTHER_WATCH:
		ep_add(other, f, 0, EPOLLIN | EPOLLET, 'b');
		assert_one(other, EPOLLIN, 'b');
		break;
	case EPOLL_WATCHED:
		ep_add(other, pollux_ep_file(ep), 0, EPOLLIN | EPOLLET, 'b');
		assert_one(other, EPOLLIN, 'b');
		break;
	case DEL_AND_ADD:
		assert_int_equal(ep_del(ep, f, 0), 0);
		assert_int_equal(pollux_efd_read(e, &v, 0), 0);
		ep_add(ep, f, 0, EPOLLIN | EPOLLET, 'a');
		assert_none(ep);
		break;
	default:
		/* Polled and found not ready: off the list. */
		assert_int_equal(pollux_efd_read(e, &v, 0), 0);
		assert_int_equal(pollux_file_poll(pollux_ep_file(ep), UINT32_MAX), 0);
	}
	if (late) {
		assert_false(quiet(e));
		stopped_go(s);
	}
	assert_false(quiet(e));
	efd_add(e, 1);
	if (c == ANOTHER_WATCH || c == EPOLL_WATCHED)
		assert_one(other, EPOLLIN, 'b');
	else
		assert_one(ep, EPOLLIN, 'a');
	ep_put(other);
}

static void a_change_ends_the_quiet(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	for (int c = 0; c < CHANGES; c++) {
		for (int late = 0; late < 2; late++) {
			struct pollux_ep *ep = ep_new();
			struct pollux_efd *e = efd_new(0, 0);
			struct stopped s;

			ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
			efd_add(e, 1);
			assert_false(quiet(e));
			if (late) {
				stopped_start(&s, "quiet_before_cas", e, NULL);
			} else {
				efd_add(e, 1);
				assert_true(quiet(e));
				efd_add(e, 1);
			}
			change(c, ep, e, late, &s);
			ep_put(ep);
			efd_put(e);
		}
	}
}

/* The word looks as before, and yet the item is another time on its way to the list. */
static void the_same_word_a_second_time(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);
	struct stopped quieter, pusher;

	(void)state;
	torture_begin();
	points_delay(false);
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	efd_add(e, 1);
	stopped_start(&quieter, "quiet_before_cas", e, NULL);
	assert_one(ep, EPOLLIN, 'a');
	assert_int_equal(efd_take(e), 2);
	efd_add(e, 1);
	assert_one(ep, EPOLLIN, 'a');
	stopped_start(&pusher, "push_before_link", e, NULL);
	assert_int_equal(pollux_efd_count(e), 2);
	stopped_go(&quieter);
	assert_false(quiet(e));
	efd_add(e, 1);
	assert_one(ep, EPOLLIN, 'a');
	stopped_go(&pusher);
	ep_put(ep);
	efd_put(e);
}

/* Takes the item away and is stopped when that is off the list, and nothing else has been said. */
struct leaving {
	struct thread t;
	struct gate g;
	struct pollux_ep *ep;
	struct pollux_file *f;
	int r;
};

static void leaving_main(struct thread *t)
{
	struct leaving *l = t->arg;

	gate_arm(&l->g, "remove_before_dead");
	l->r = ep_del(l->ep, l->f, 0);
}

static void blocked_reader(struct thread *t)
{
	uint64_t v;

	if (pollux_efd_read(t->arg, &v, 1) != 0 || v != 1)
		broken("a reader was not told of a write");
}

/* Where the one writes who is stopped, if there is one; what comes to the empty list. */
enum before { QUIET_ALREADY, BEFORE_QUIET, BEFORE_ADD, BEFORES };
enum comes { WATCH, BLOCKED_READER };

static void come_while_leaving(enum before b, enum comes c)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct pollux_file *f = pollux_efd_file(e);
	struct leaving l = {.ep = ep_new(), .f = f};
	struct pollux_ep *other = ep_new();
	struct thread reader;
	struct stopped s;

	ep_add(l.ep, f, 0, EPOLLIN | EPOLLET, 'a');
	if (b == BEFORE_ADD) {
		stopped_start(&s, "add_before_cas", e, NULL);
	} else {
		efd_add(e, 1);
		if (b == BEFORE_QUIET)
			stopped_start(&s, "quiet_before_cas", e, NULL);
		else
			efd_add(e, 1);
		assert_int_equal(quiet(e), b == QUIET_ALREADY);
	}
	/* Whoever is to make the file quiet does so only while the count is what he has seen. */
	if (b == QUIET_ALREADY)
		assert_int_equal(efd_take(e), 2);
	thread_start(&l.t, leaving_main, &l);
	assert_true(gate_reached(&l.g));
	if (c == WATCH) {
		ep_add(other, f, 0, EPOLLIN | EPOLLET, 'b');
		if (b == BEFORE_QUIET)
			assert_one(other, EPOLLIN, 'b');
		else
			assert_none(other);
	} else {
		thread_start(&reader, blocked_reader, e);
		assert_true(thread_asleep(&reader));
	}
	if (b != QUIET_ALREADY)
		stopped_go(&s);
	assert_false(quiet(e));
	if (b != BEFORE_ADD)
		efd_add(e, 1);
	if (c == WATCH)
		assert_one(other, EPOLLIN, 'b');
	else
		thread_join(&reader);
	gate_open(&l.g);
	thread_join(&l.t);
	assert_int_equal(l.r, 0);
	assert_false(torture_failed);
	ep_put(l.ep);
	ep_put(other);
	efd_put(e);
}

/* The only item has left the list, and has not ended the quiet yet: who comes then does it. */
static void who_comes_ends_the_quiet(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	for (int b = 0; b < BEFORES; b++)
		come_while_leaving(b, WATCH);
	/* A reader sleeps only while there is nothing to read. */
	come_while_leaving(QUIET_ALREADY, BLOCKED_READER);
	come_while_leaving(BEFORE_ADD, BLOCKED_READER);
}

static void never_quiet_with_two_to_tell(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct pollux_ep *a = ep_new(), *b = ep_new();

	(void)state;
	torture_begin();
	ep_add(a, pollux_efd_file(e), 0, EPOLLIN, 'a');
	ep_add(b, pollux_efd_file(e), 0, EPOLLIN, 'b');
	for (int i = 0; i < 20; i++) {
		efd_add(e, 1);
		assert_false(quiet(e));
	}
	/* The first item, which marks in the file's word, goes: the second stands alone. */
	assert_int_equal(ep_del(a, pollux_efd_file(e), 0), 0);
	for (int i = 0; i < 20; i++) {
		efd_add(e, 1);
		assert_one(b, EPOLLIN, 'b');
	}
	ep_put(a);
	ep_put(b);
	efd_put(e);
}

/*
 * Each writer tells the truth about itself: after its write has returned, the event
 * is there or was collected after the write began. An outer epoll comes and goes.
 */
struct shared {
	struct pollux_ep *ep, *up;
	struct pollux_efd *e;
	unsigned long written, taken, quiets, tops;
	/* No writer is left. */
	int over;
};

static void writer(struct thread *t)
{
	struct shared *s = t->arg;

	while (!stopping()) {
		atomic_add(&s->written, 1);
		(void)pollux_efd_write(s->e, 1, 0);
		atomic_add(&s->quiets, quiet(s->e));
		if (!await(atomic_get(&s->taken) + 50 > atomic_get(&s->written) || stopping()))
			broken("nobody was told of a write");
	}
}

static void reader(struct thread *t)
{
	struct shared *s = t->arg;
	struct epoll_event ev;
	uint64_t v;

	while (!atomic_get(&s->over) || atomic_get(&s->taken) < atomic_get(&s->written)) {
		if (pollux_ep_wait(s->ep, &ev, 1, 10000000) != 1)
			continue;
		/* Once and not until it is empty: the next edge has to come by itself. */
		if (pollux_efd_read(s->e, &v, 0) == 0)
			atomic_add(&s->taken, v);
	}
}

static void come_and_go(struct thread *t)
{
	struct shared *s = t->arg;
	struct epoll_event ev;

	for (unsigned long i = 0; !stopping(); i++) {
		struct pollux_file *f = i & 1 ? pollux_ep_file(s->ep) : pollux_efd_file(s->e);

		if (ep_ctl(s->up, EPOLL_CTL_ADD, f, 0, EPOLLIN | EPOLLET, 'u') != 0)
			broken("ADD failed");
		atomic_add(&s->tops, pollux_ep_wait(s->up, &ev, 1, 100000) == 1);
		if (ep_del(s->up, f, 0) != 0)
			broken("DEL failed");
	}
}

static void random_quiet(void **state)
{
	struct shared s = {.ep = ep_new(), .up = ep_new(), .e = efd_new(0, 0)};
	unsigned long tried = points_passed("quiet_before_cas");
	struct thread t[3], r;

	(void)state;
	torture_begin();
	ep_add(s.ep, pollux_efd_file(s.e), 0, EPOLLIN | EPOLLET, 'a');
	thread_start(&r, reader, &s);
	for (int i = 0; i < 3; i++)
		thread_start(&t[i], i < 2 ? writer : come_and_go, &s);
	torture_sleep_until(points_passed("quiet_before_cas") > tried && atomic_get(&s.quiets) &&
			    atomic_get(&s.tops));
	torture_end(t, 3);
	atomic_set(&s.over, 1);
	thread_join(&r);
	tried = points_passed("quiet_before_cas") - tried;
	print_message("%lu written, %lu taken, quiet tried %lu times, seen %lu times, %lu tops\n",
		      s.written, s.taken, tried, s.quiets, s.tops);
	assert_int_equal(s.written, s.taken);
	assert_true(tried > 0 && s.quiets > 0 && s.tops > 0);
	ep_put(s.ep);
	ep_put(s.up);
	efd_put(s.e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_change_ends_the_quiet),
		TEST(the_same_word_a_second_time),
		TEST(who_comes_ends_the_quiet),
		TEST(never_quiet_with_two_to_tell),
		TEST(random_quiet),
	};

	return RUN(tests);
}
