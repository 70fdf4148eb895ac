/* SPDX-License-Identifier: MIT */
/*
 * However many threads nest epolls at the same time, no loop and no sixth level comes
 * about, and what one thread alone could do does not fail.
 */
#include "torture.h"

#define EPS 9
#define THREADS 3

struct shared {
	struct meet m;
	struct pollux_ep *ep[EPS];
	/* link[i][j]: i watches j. Each pair belongs to one thread. */
	bool link[EPS][EPS];
	unsigned long adds, loops, dels, others, rounds;
};

struct part {
	struct shared *s;
	int id;
};

static void part(struct thread *t)
{
	struct part *p = t->arg;
	struct shared *s = p->s;
	uint32_t r = (uint32_t)t->tid;

	for (;;) {
		if (!meet(&s->m))
			return;
		for (int step = 0; step < 12; step++) {
			int i = rnd(&r) % EPS, j = rnd(&r) % EPS;
			struct pollux_file *f = pollux_ep_file(s->ep[j]);
			int res;

			if (i == j || (i * EPS + j) % THREADS != p->id)
				continue;
			if (s->link[i][j]) {
				if (ep_del(s->ep[i], f, 0) != 0)
					broken("DEL of a link that is there");
				s->link[i][j] = false;
				atomic_add(&s->dels, 1);
				continue;
			}
			res = ep_ctl(s->ep[i], EPOLL_CTL_ADD, f, 0, EPOLLIN, j);
			s->link[i][j] = res == 0;
			atomic_add(res == 0 ? &s->adds : res == -ELOOP ? &s->loops : &s->others, 1);
		}
		/* The oracle looks. */
		if (!meet(&s->m) || !meet(&s->m))
			return;
	}
}

/* Epolls on the longest chain from i downwards; more than EPS: a loop. */
static int depth(struct shared *s, int i, int level)
{
	int deepest = 0;

	if (level > EPS)
		return level;
	for (int j = 0; j < EPS; j++) {
		int d = s->link[i][j] ? depth(s, j, level + 1) : 0;

		if (d > deepest)
			deepest = d;
	}
	return deepest + 1;
}

static void no_loop_and_no_sixth_level(void **state)
{
	struct shared s = {.m.n = THREADS + 1};
	struct part p[THREADS];
	struct thread t[THREADS];
	int64_t start = now_ns();
	int deepest = 0;

	(void)state;
	torture_begin();
	for (int i = 0; i < EPS; i++)
		s.ep[i] = ep_new();
	for (int i = 0; i < THREADS; i++) {
		p[i] = (struct part){&s, i};
		thread_start(&t[i], part, &p[i]);
	}
	while (torture_until(start, s.adds > 100 && s.loops > 100 && deepest == 5)) {
		if (!meet(&s.m) || !meet(&s.m))
			break;
		for (int i = 0; i < EPS; i++) {
			int d = depth(&s, i, 1);

			deepest = d > deepest ? d : deepest;
			if (d > 5)
				broken("round %lu: %d levels below epoll %d", s.rounds, d, i);
		}
		/* Legal links are possible: the checks have left nothing behind. */
		if (s.rounds % 8 == 0) {
			for (int i = 0; i < EPS; i++)
				for (int j = 0; j < EPS; j++)
					if (s.link[i][j]) {
						(void)ep_del(s.ep[i], pollux_ep_file(s.ep[j]), 0);
						s.link[i][j] = false;
					}
			for (int i = 0; i < 4; i++)
				if (ep_ctl(s.ep[i], EPOLL_CTL_ADD, pollux_ep_file(s.ep[i + 1]), 0,
					   EPOLLIN, 0) != 0)
					broken("a chain of five was refused");
			for (int i = 0; i < 4; i++)
				(void)ep_del(s.ep[i], pollux_ep_file(s.ep[i + 1]), 0);
		}
		s.rounds++;
		if (!meet(&s.m))
			break;
	}
	torture_end(t, THREADS);
	print_message("%lu rounds: %lu added, %lu refused, %lu deleted; deepest %d\n", s.rounds,
		      s.adds, s.loops, s.dels, deepest);
	assert_int_equal(s.others, 0);
	assert_true(s.adds > 100 && s.loops > 100 && deepest == 5);
	for (int i = 0; i < EPS; i++)
		ep_put(s.ep[i]);
}

/* --- two that want to watch each other ------------------------------------------------ */

struct pair {
	struct meet m;
	struct pollux_ep *ep[2];
	int r[2];
};

static void other_way(struct thread *t)
{
	struct pair *p = t->arg;

	while (meet(&p->m)) {
		p->r[1] = ep_ctl(p->ep[1], EPOLL_CTL_ADD, pollux_ep_file(p->ep[0]), 0, EPOLLIN, 0);
		if (!meet(&p->m))
			return;
	}
}

static void exactly_one_of_two(void **state)
{
	struct pair p = {.m.n = 2, .ep = {ep_new(), ep_new()}};
	unsigned long rounds = 0, first = 0;
	int64_t start = now_ns();
	struct thread t;

	(void)state;
	torture_begin();
	thread_start(&t, other_way, &p);
	for (; torture_until(start, first && first < rounds); rounds++) {
		if (!meet(&p.m))
			break;
		p.r[0] = ep_ctl(p.ep[0], EPOLL_CTL_ADD, pollux_ep_file(p.ep[1]), 0, EPOLLIN, 0);
		if (!meet(&p.m))
			break;
		if ((p.r[0] == 0) == (p.r[1] == 0) || p.r[0] + p.r[1] != -ELOOP) {
			broken("round %lu: %d and %d", rounds, p.r[0], p.r[1]);
			break;
		}
		first += p.r[0] == 0;
		(void)ep_del(p.ep[p.r[0] != 0], pollux_ep_file(p.ep[p.r[0] == 0]), 0);
	}
	torture_end(&t, 1);
	print_message("%lu rounds, %lu for the one, %lu for the other\n", rounds, first,
		      rounds - first);
	assert_true(first > 0 && first < rounds);
	ep_put(p.ep[0]);
	ep_put(p.ep[1]);
}

/* --- paths: a file and an epoll added at the same time ---------------------------------- */

struct paths {
	struct meet m;
	struct pollux_ep *inner, *top;
	struct obj *o;
	int r;
};

static void add_file(struct thread *t)
{
	struct paths *p = t->arg;

	while (meet(&p->m)) {
		p->r = ep_ctl(p->inner, EPOLL_CTL_ADD, &p->o->file, 0, EPOLLIN, 0);
		if (!meet(&p->m))
			return;
	}
}

/* 500 paths are there as soon as the file is; the 501st epoll and the file exclude each other. */
static void a_file_and_the_epoll_too_many(void **state)
{
	struct paths p = {.m.n = 2, .inner = ep_new(), .top = ep_new(), .o = obj_new(0)};
	struct pollux_ep *outer = ep_new();
	unsigned long rounds = 0, file_first = 0;
	int64_t start = now_ns();
	struct thread t;

	(void)state;
	torture_begin();
	for (int i = 0; i < 500; i++)
		ep_add(outer, pollux_ep_file(p.inner), i, EPOLLIN, 0);
	thread_start(&t, add_file, &p);
	for (; torture_until(start, file_first && file_first < rounds); rounds++) {
		int r;

		if (!meet(&p.m))
			break;
		r = ep_ctl(p.top, EPOLL_CTL_ADD, pollux_ep_file(p.inner), 0, EPOLLIN, 0);
		if (!meet(&p.m))
			break;
		if ((r == 0) == (p.r == 0) || r + p.r != -EINVAL)
			broken("round %lu: epoll %d, file %d", rounds, r, p.r);
		file_first += p.r == 0;
		(void)ep_del(p.top, pollux_ep_file(p.inner), 0);
		(void)ep_del(p.inner, &p.o->file, 0);
	}
	torture_end(&t, 1);
	print_message("%lu rounds, the file first in %lu\n", rounds, file_first);
	assert_true(file_first > 0 && file_first < rounds);
	ep_put(outer);
	ep_put(p.inner);
	ep_put(p.top);
	obj_put(p.o);
}

/* Whether j, or what hangs below it, watches i. */
static bool reaches(struct shared *s, int j, int i)
{
	if (i == j)
		return true;
	for (int k = 0; k < EPS; k++)
		if (s->link[j][k] && reaches(s, k, i))
			return true;
	return false;
}

static int height(struct shared *s, int j)
{
	int highest = 0;

	for (int i = 0; i < EPS; i++) {
		int h = s->link[i][j] ? height(s, i) : 0;

		if (h > highest)
			highest = h;
	}
	return highest + 1;
}

/*
 * What a walk notes about an epoll that closes a loop must not be reckoned with later
 * (R5): each answer is that of an oracle without notes, after any number of refusals.
 */
static void each_answer_is_that_of_an_oracle(void **state)
{
	struct shared s = {0};
	unsigned long taken = 0, loops = 0, deep = 0;
	int64_t start = now_ns();
	uint32_t r = 4;

	(void)state;
	torture_begin();
	for (int i = 0; i < EPS; i++)
		s.ep[i] = ep_new();
	while (torture_until(start, taken && loops && deep)) {
		int i = rnd(&r) % EPS, j = rnd(&r) % EPS, want, got;
		struct pollux_file *f = pollux_ep_file(s.ep[j]);
		bool loop;

		if (i == j)
			continue;
		/* Few removals: the sets are nearly full all the time. */
		if (s.link[i][j]) {
			if (rnd(&r) % 3 == 0) {
				assert_int_equal(ep_del(s.ep[i], f, 0), 0);
				s.link[i][j] = false;
			}
			continue;
		}
		loop = reaches(&s, j, i);
		want = loop || depth(&s, j, 1) + height(&s, i) > 5 ? -ELOOP : 0;
		got = ep_ctl(s.ep[i], EPOLL_CTL_ADD, f, 0, EPOLLIN, j);
		if (got != want)
			broken("%d below %d: %d, not %d", j, i, got, want);
		s.link[i][j] = got == 0;
		taken += got == 0;
		loops += loop;
		deep += got != 0 && !loop;
	}
	assert_false(torture_failed);
	print_message("%lu taken, %lu loops, %lu too deep\n", taken, loops, deep);
	assert_true(taken && loops && deep);
	for (int i = 0; i < EPS; i++)
		ep_put(s.ep[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_loop_and_no_sixth_level),
		TEST(each_answer_is_that_of_an_oracle),
		TEST(exactly_one_of_two),
		TEST(a_file_and_the_epoll_too_many),
	};

	return RUN(tests);
}
