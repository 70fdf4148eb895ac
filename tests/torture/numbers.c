/* SPDX-License-Identifier: MIT */
/*
 * Descriptors are made, duplicated and closed while all objects become kernel objects: each
 * number goes on to mean the object that it meant, whichever of the two it is, and what
 * has been closed is watched no more.
 */
#include "torture.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <pollux/posix.h>

#define CHANGERS 3

struct changer {
	int ep;
	unsigned long rounds;
	/* Rounds in which the object was served at first, and at the end was not. */
	unsigned long moved;
};

struct world {
	struct changer changers[CHANGERS];
	unsigned long escapes;
};

static void add(int ep, int fd, uint64_t data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

	if (pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0)
		broken("ADD: %s", strerror(errno));
}

static void expect(int fd, uint64_t want)
{
	uint64_t v = 0;

	if (pollux_read(fd, &v, sizeof(v)) != sizeof(v) || v != want)
		broken("fd %d held %lu instead of %lu", fd, (unsigned long)v, (unsigned long)want);
}

static void put(int fd, uint64_t v)
{
	if (pollux_write(fd, &v, sizeof(v)) != sizeof(v))
		broken("a write failed: %s", strerror(errno));
}

static int nothing_left(int ep)
{
	struct epoll_event ev;

	return pollux_epoll_wait(ep, &ev, 1, 0) == 0;
}

/* The same object under both numbers. */
static void same(int a, int b, uint64_t v)
{
	put(a, v);
	expect(b, v);
	put(b, v + 1);
	expect(a, v + 1);
}

static void change(struct changer *c, uint32_t how)
{
	int fd = pollux_eventfd(5, EFD_NONBLOCK | (how & 1 ? EFD_CLOEXEC : 0));
	struct epoll_event ev = {0};
	bool served;
	int other;

	if (fd < 0) {
		broken("eventfd: %s", strerror(errno));
		return;
	}
	if (how & 2)
		add(c->ep, fd, 1);
	expect(fd, 5);
	served = pollux_fd_served(fd);
	put(fd, 5);
	/* By somebody else, and not by the duplicate. */
	if (served && !pollux_fd_served(fd))
		atomic_add(&c->moved, 1);
	if (how & 4) {
		other = pollux_fcntl(fd, F_DUPFD_CLOEXEC, 0);
	} else {
		/* Over something else that is ours. */
		other = pollux_eventfd(0, EFD_NONBLOCK);
		if (pollux_dup3(fd, other, O_CLOEXEC) != other)
			broken("dup3: %s", strerror(errno));
	}
	expect(other, 5);
	same(fd, other, 7);
	put(fd, 1);
	if ((how & 2) && (pollux_epoll_wait(c->ep, &ev, 1, 0) != 1 || ev.data.u64 != 1))
		broken("what is ready was not reported");
	check(pollux_close(fd) == 0);
	if ((how & 2) && pollux_epoll_wait(c->ep, &ev, 1, 0) != 1)
		broken("one of two numbers was closed, and the watch had gone");
	expect(other, 1);
	check(pollux_close(other) == 0);
	check(nothing_left(c->ep));
	c->rounds++;
}

static void changer(struct thread *t)
{
	struct changer *c = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)c;

	while (!stopping()) {
		/* What has become a kernel epoll stays one. */
		c->ep = pollux_epoll_create1(EPOLL_CLOEXEC);
		check(c->ep >= 0);
		for (int i = 0; i < 16 && !stopping(); i++)
			change(c, rnd(&r));
		check(pollux_close(c->ep) == 0);
	}
}

static bool met(const struct world *w)
{
	for (int i = 0; i < CHANGERS; i++)
		if (!atomic_get(&w->changers[i].moved))
			return false;
	return w->escapes > 50;
}

static void changes_beside_escapes(void **state)
{
	struct thread t[CHANGERS];
	struct world w = {0};
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	for (int i = 0; i < CHANGERS; i++)
		thread_start(&t[i], changer, &w.changers[i]);
	for (; torture_until(start, met(&w)); w.escapes++) {
		pollux_escape(-1);
		sched_yield();
	}
	torture_end(t, CHANGERS);
	for (int i = 0; i < CHANGERS; i++)
		print_message("%lu rounds, %lu moved\n", w.changers[i].rounds, w.changers[i].moved);
	print_message("%lu escapes\n", w.escapes);
	assert_true(met(&w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(changes_beside_escapes),
	};

	reach_all_numbers();
	return RUN(tests);
}
