/* SPDX-License-Identifier: MIT */
/*
 * A counter counts: what the writers have put in is what the readers take out and
 * what is left, also while the count outgrows the word it is kept in at first.
 */
#include "epoll/engine.h"

#include "torture.h"

struct shared {
	struct meet m;
	struct pollux_efd *e;
	int quit, big;
	uint64_t in, out;
	unsigned long writes, reads, refused;
};

static void writer(struct thread *t)
{
	static const uint64_t step[] = {1, 3, 1ull << 6, 1ull << 27, 1ull << 29, 1ull << 62};
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	for (;;) {
		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		for (int i = 0; i < 20; i++) {
			uint64_t v = step[rnd(&r) % (s->big ? 6 : 2)];
			int w = pollux_efd_write(s->e, v, 0);

			if (w == 0) {
				atomic_add(&s->in, v);
				atomic_add(&s->writes, 1);
			} else if (w == -EAGAIN) {
				atomic_add(&s->refused, 1);
			} else {
				broken("write: %d", w);
			}
		}
		if (!meet(&s->m))
			return;
	}
}

static void reader(struct thread *t)
{
	struct shared *s = t->arg;

	for (;;) {
		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		for (int i = 0; i < 20; i++) {
			uint64_t v = 0;

			if (pollux_efd_read(s->e, &v, 0) == 0) {
				if (!v)
					broken("a read of nothing succeeded");
				atomic_add(&s->out, v);
				atomic_add(&s->reads, 1);
			}
		}
		if (!meet(&s->m))
			return;
	}
}

/* A new counter each round: the change of the way of counting happens once in its life. */
static void run(int big, int flags, bool watched)
{
	struct shared s = {.m.n = 5, .big = big};
	unsigned long rounds = 0, grown = 0;
	struct pollux_ep *ep = ep_new();
	struct thread t[4];
	int64_t start = now_ns();

	torture_begin();
	for (int i = 0; i < 4; i++)
		thread_start(&t[i], i < 2 ? writer : reader, &s);
	while (torture_part_until(start, 4, rounds > 20 && s.reads > 20 && (!big || grown > 20))) {
		struct epoll_event ev;

		s.in = s.out = 0;
		if (pollux_efd_new(&s.e, 0, flags) != 0)
			broken("no memory");
		if (watched &&
		    ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(s.e), 0, EPOLLIN | EPOLLET, 'a') != 0)
			broken("ADD failed");
		if (!meet(&s.m))
			break;
		if (watched)
			for (int i = 0; i < 20; i++)
				(void)pollux_ep_wait(ep, &ev, 1, 0);
		if (!meet(&s.m))
			break;
		if (s.in != s.out + pollux_efd_count(s.e))
			broken("round %lu: %llu in, %llu out, %llu left", rounds,
			       (unsigned long long)s.in, (unsigned long long)s.out,
			       (unsigned long long)pollux_efd_count(s.e));
		grown += !!(pollux_efd_file(s.e)->word & PLX_SLOW);
		efd_put(s.e);
		rounds++;
	}
	atomic_set(&s.quit, 1);
	(void)meet(&s.m);
	torture_end(t, 4);
	print_message("%lu rounds, %lu grown, %lu writes, %lu refused, %lu reads\n", rounds, grown,
		      s.writes, s.refused, s.reads);
	assert_true(rounds > 20 && s.reads > 20);
	assert_true(!big || grown > 20);
	ep_put(ep);
}

static void small_counts(void **state)
{
	(void)state;
	run(0, 0, false);
	run(0, 0, true);
	run(0, POLLUX_EFD_SEMAPHORE, true);
}

static void growing_counts(void **state)
{
	(void)state;
	run(1, 0, false);
	run(1, 0, true);
	run(1, POLLUX_EFD_SEMAPHORE, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(small_counts),
		TEST(growing_counts),
	};

	return RUN(tests);
}
