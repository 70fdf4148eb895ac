/* SPDX-License-Identifier: MIT */
/*
 * DEL, the last close of the file and the close of the epoll meet, with wakes and
 * waits beside them: each item, each file and each epoll goes exactly once, nothing is
 * touched afterwards (the sanitizers see to that), and no file is polled after its
 * release.
 */
#include "torture.h"

struct target {
	struct pollux_file file;
	int gone;
};

/* The role that drops the last reference of a file is the one that releases it. */
enum role { DEL, CLOSE_FILE, CLOSE_EPOLL, WAKE, WAIT, ROLES };

static unsigned long released, freed, polled;
static unsigned long released_by[ROLES + 1];
static __thread enum role my_role = ROLES;

static uint32_t target_poll(struct pollux_file *f, uint32_t wanted)
{
	struct target *x = (struct target *)f;

	(void)wanted;
	if (atomic_get(&x->gone))
		broken("a file is polled after its release");
	atomic_add(&polled, 1);
	return EPOLLIN;
}

static void target_release(struct pollux_file *f)
{
	struct target *x = (struct target *)f;

	if (__atomic_exchange_n(&x->gone, 1, __ATOMIC_SEQ_CST))
		broken("a file is released twice");
	atomic_add(&released_by[my_role], 1);
	atomic_add(&released, 1);
}

static void target_free(struct pollux_file *f)
{
	struct target *x = (struct target *)f;

	if (atomic_get(&x->gone) != 1)
		broken("a file is freed before its release");
	x->gone = 2;
	atomic_add(&freed, 1);
	free(x);
}

static const struct pollux_file_ops target_ops = {
	.size = sizeof(target_ops),
	.poll = target_poll,
	.release = target_release,
	.free = target_free,
};

/* Each thread holds references on what it uses, and does its own part of the round. */
struct shared {
	struct meet m;
	struct pollux_ep *ep, *up;
	struct target *x;
	unsigned long deleted, rounds, waited;
	int quit;
};

struct part {
	struct shared *s;
	enum role role;
};

static void part(struct thread *t)
{
	struct part *p = t->arg;
	struct shared *s = p->s;

	my_role = p->role;
	for (;;) {
		struct epoll_event ev;

		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		switch (p->role) {
		case DEL:
			s->deleted += ep_del(s->ep, &s->x->file, 0) == 0;
			pollux_file_put(&s->x->file);
			pollux_file_put(pollux_ep_file(s->ep));
			break;
		case CLOSE_FILE:
			pollux_file_put(&s->x->file);
			break;
		case CLOSE_EPOLL:
			pollux_file_put(pollux_ep_file(s->ep));
			break;
		case WAKE:
			for (int i = 0; i < 3; i++)
				pollux_file_wake(&s->x->file, EPOLLIN);
			pollux_file_put(&s->x->file);
			break;
		default:
			for (int i = 0; i < 3; i++)
				s->waited += pollux_ep_wait(s->ep, &ev, 1, 0) == 1;
			pollux_file_put(pollux_ep_file(s->ep));
		}
		if (!meet(&s->m))
			return;
	}
}

/* Whether each side that can be the last one has been it. */
static bool run_met(unsigned int roles, unsigned long rounds)
{
	return rounds > 50 && atomic_get(&released_by[CLOSE_FILE]) &&
	       (!(roles & 1u << DEL) || atomic_get(&released_by[DEL]));
}

static void run(unsigned int roles, bool nested, int per_test)
{
	struct shared s = {.m.n = 1};
	struct part p[ROLES];
	struct thread t[ROLES];
	int64_t start = now_ns();
	unsigned long made = 0;
	int n = 0;

	torture_begin();
	released = freed = 0;
	memset(released_by, 0, sizeof(released_by));
	s.up = nested ? ep_new() : NULL;
	for (int role = 0; role < ROLES; role++) {
		if (!(roles & 1u << role))
			continue;
		p[n] = (struct part){&s, role};
		s.m.n++;
		n++;
	}
	for (int i = 0; i < n; i++)
		thread_start(&t[i], part, &p[i]);
	while (torture_part_until(start, per_test, run_met(roles, s.rounds))) {
		s.ep = NULL;
		if (pollux_ep_new(&s.ep, NULL) != 0)
			broken("no memory");
		s.x = calloc(1, sizeof(*s.x));
		pollux_file_init(&s.x->file, &target_ops);
		made++;
		(void)ep_ctl(s.ep, EPOLL_CTL_ADD, &s.x->file, 0, EPOLLIN | EPOLLET, 'a');
		(void)ep_ctl(s.ep, EPOLL_CTL_ADD, &s.x->file, 1, EPOLLIN, 'b');
		if (nested)
			(void)ep_ctl(s.up, EPOLL_CTL_ADD, pollux_ep_file(s.ep), 0, EPOLLIN, 'e');
		for (int i = 0; i < n; i++) {
			if (p[i].role == DEL || p[i].role == WAKE)
				pollux_file_get(&s.x->file);
			if (p[i].role == DEL || p[i].role == WAIT)
				pollux_file_get(pollux_ep_file(s.ep));
		}
		/* Without a part that closes, this thread's reference goes first. */
		if (!(roles & 1u << CLOSE_FILE))
			pollux_file_put(&s.x->file);
		if (!(roles & 1u << CLOSE_EPOLL))
			pollux_file_put(pollux_ep_file(s.ep));
		if (!meet(&s.m) || !meet(&s.m))
			break;
		if (nested && pollux_ep_wait(s.up, &(struct epoll_event){0}, 1, 0) != 0)
			broken("an epoll that is closed is reported");
		if (pollux_ep_watches() != 0)
			broken("round %lu: %ld items left", s.rounds, pollux_ep_watches());
		if (atomic_get(&released) != made)
			broken("round %lu: %lu of %lu files released", s.rounds, released, made);
		s.rounds++;
	}
	atomic_set(&s.quit, 1);
	(void)meet(&s.m);
	torture_end(t, n);
	if (nested)
		ep_put(s.up);
	/* Batches of the threads that ended are released here as well. */
	pollux_quiesce();
	print_message("roles %#x%s: %lu rounds, %lu events; released by DEL %lu, by the close of "
		      "the file %lu, of the epoll %lu, after a wake %lu\n",
		      roles, nested ? " nested" : "", s.rounds, s.waited, released_by[DEL],
		      released_by[CLOSE_FILE], released_by[CLOSE_EPOLL], released_by[WAKE]);
	assert_int_equal(freed, made);
	assert_true(s.rounds > 50);
	assert_true(released_by[CLOSE_FILE] > 0);
	assert_true(!(roles & 1u << DEL) || (released_by[DEL] > 0 && s.deleted == s.rounds));
}

#define R(x) (1u << (x))

static void three_removers(void **state)
{
	(void)state;
	run(R(DEL) | R(CLOSE_FILE) | R(CLOSE_EPOLL), false, 1);
}

static void both_closes(void **state)
{
	(void)state;
	run(R(CLOSE_FILE) | R(CLOSE_EPOLL), false, 3);
	run(R(CLOSE_FILE) | R(CLOSE_EPOLL), true, 3);
	run(R(DEL) | R(CLOSE_FILE), false, 3);
}

static void with_wakes_and_waits(void **state)
{
	(void)state;
	run(R(DEL) | R(CLOSE_FILE) | R(CLOSE_EPOLL) | R(WAKE) | R(WAIT), false, 2);
	run(R(DEL) | R(CLOSE_FILE) | R(CLOSE_EPOLL) | R(WAKE) | R(WAIT), true, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(three_removers),
		TEST(both_closes),
		TEST(with_wakes_and_waits),
	};

	return RUN(tests);
}
