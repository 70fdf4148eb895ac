/* SPDX-License-Identifier: MIT */
/*
 * In a program with one thread, too, no file of an epoll keeps the others from being reported,
 * however few events a wait has room for (EP-ORD-04): in-process files and the kernel's take turns.
 *
 * The only file of its kind: no test here may start a thread, and each is a process of its own.
 */
#include "waiting.h"

#define WAITS 200

struct turns {
	int max;
	/* Of every second wait; the others have none. */
	int ms;
	uint32_t events;
};

static void take_turns(const struct turns *t)
{
	struct subject s[2] = {subject_new(KIND_EVENTFD), subject_new(KIND_SOCKET)};
	int ep = ep_new(), seen[2] = {0, 0};

	for (int i = 0; i < 2; i++)
		ep_add(ep, s[i].fd, EPOLLIN | t->events, (uint64_t)i);
	for (int i = 0; i < WAITS; i++) {
		struct epoll_event ev[2];
		int n;

		for (int k = 0; k < 2; k++)
			if (i == 0 || t->events & EPOLLET)
				child_check(subject_poke(&s[k]));
		n = epoll_wait(ep, ev, t->max, i % 2 ? t->ms : -1);
		child_check(n >= 1 && n <= t->max);
		for (int k = 0; k < n; k++)
			seen[ev[k].data.u64 % 2]++;
	}
	if (seen[0] < WAITS / 4 || seen[1] < WAITS / 4)
		dprintf(2, "in process %d, the kernel's %d\n", seen[0], seen[1]);
	child_check(seen[0] >= WAITS / 4 && seen[1] >= WAITS / 4);
	_exit(0);
}

static void EP_ORD_04_both_sides_have_their_turn(void **state)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		take_turns(*state);
	child_passes(pid);
}

int main(void)
{
	static const struct turns turns[] = {
		{1, -1, 0}, {1, 1000, 0}, {1, 0, 0}, {2, -1, 0}, {1, -1, EPOLLET},
	};
#define TURNS(suffix, i) VARIANT(EP_ORD_04_both_sides_have_their_turn, suffix, &turns[i])
	static const struct CMUnitTest tests[] = {
		TURNS("_one", 0), TURNS("_one_timed", 1), TURNS("_one_now_and_then", 2),
		TURNS("_two", 3), TURNS("_one_edge", 4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
