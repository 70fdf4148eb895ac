/* SPDX-License-Identifier: MIT */
/*
 * A poll on cached eventfds hears of everything that becomes ready after it was called, whatever
 * step it is at, and whatever was there and has gone before; also if the object becomes the
 * kernel's meanwhile.
 */
#include "cache/eventfd.h"
#include "cache/table.h"

#include "caller.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <pollux/posix.h>

#include "base/spin.h"

#define SIDES 4

static const uint64_t one = 1;

static bool put(int fd)
{
	return pollux_write(fd, &one, sizeof(one)) == sizeof(one);
}

static bool get(int fd)
{
	uint64_t v = 0;

	return pollux_read(fd, &v, sizeof(v)) == sizeof(v) && v == 1;
}

struct call {
	struct thread t;
	struct gate gate;
	const char *point;
	int fd, r;
	short revents;
};

static void polls(struct thread *t)
{
	struct call *c = t->arg;
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	gate_arm(&c->gate, c->point);
	c->r = pollux_poll(&p, 1, -1);
	c->revents = p.revents;
}

/* It stands at the point. */
static void call_start(struct call *c, const char *point)
{
	torture_begin();
	points_delay(false);
	*c = (struct call){.point = point, .fd = new_efd()};
	start_to_gate(&c->t, polls, c, &c->gate);
}

static void call_ends(struct call *c)
{
	assert_true(await(thread_done(&c->t)));
	torture_end(&c->t, 1);
	assert_int_equal(c->r, 1);
	assert_int_equal(c->revents, POLLIN);
	pollux_close(c->fd);
}

/* Before it is counted as a sleeper, and after that. */
static const char *const steps[] = {"poll_counts", "poll_before_sleep"};

/* vain: what was there has gone when it looks, and it is written again. */
static void ready_at(const char *point, bool vain)
{
	struct call c;

	call_start(&c, point);
	assert_true(put(c.fd));
	if (vain)
		assert_true(get(c.fd));
	gate_open(&c.gate);
	if (vain) {
		assert_true(thread_asleep(&c.t));
		assert_true(put(c.fd));
	}
	assert_int_equal(pollux_fd_served(c.fd), 1);
	call_ends(&c);
}

static void ready_at_any_step(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		ready_at(steps[i], false);
}

static void ready_after_a_vain_write(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		ready_at(steps[i], true);
}

static void leaves_at(const char *point, bool before)
{
	struct call c;

	call_start(&c, point);
	if (before)
		assert_true(put(c.fd));
	pollux_escape(c.fd);
	assert_int_equal(pollux_fd_served(c.fd), 0);
	gate_open(&c.gate);
	if (!before) {
		assert_true(thread_asleep(&c.t));
		assert_true(put(c.fd));
	}
	call_ends(&c);
}

static void ready_while_it_leaves(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		leaves_at(steps[i], true);
		leaves_at(steps[i], false);
	}
}

static void polls_for_a_while(struct thread *t)
{
	struct call *c = t->arg;
	struct pollfd p = {.fd = c->fd, .events = POLLIN, .revents = POLLIN};

	c->r = pollux_poll(&p, 1, 100);
	c->revents = p.revents;
}

/* It leaves in the sleep, and has nothing. */
static void leaves_before_the_time_is_over(void **state)
{
	struct call c = {0};

	(void)state;
	torture_begin();
	points_delay(false);
	c.fd = new_efd();
	thread_start(&c.t, polls_for_a_while, &c);
	assert_true(thread_asleep(&c.t));
	pollux_escape(c.fd);
	torture_end(&c.t, 1);
	assert_int_equal(c.r, 0);
	assert_int_equal(c.revents, 0);
	pollux_close(c.fd);
}

static void polls_cold(struct thread *t)
{
	struct call *c = t->arg;
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	gate_arm(&c->gate, c->point);
	c->r = pollux_poll(&p, 1, strcmp(c->point, "poll_looks") ? -1 : 0);
	c->revents = p.revents;
}

/* At the point it is adopted, with what it has had from the beginning. */
static void adopted_at(const char *point)
{
	struct call c = {.point = point};
	struct plx_eventfd *e;
	uint64_t v;

	torture_begin();
	points_delay(false);
	c.fd = new_efd();
	e = plx_file_eventfd(plx_table_get(c.fd));
	assert_true(put(c.fd));
	plx_eventfd_return(e);
	assert_true(plx_eventfd_cold(&e->file));
	start_to_gate(&c.t, polls_cold, &c, &c.gate);
	assert_int_equal(plx_eventfd_adopt(e, c.fd, &one), sizeof(one));
	assert_false(plx_eventfd_cold(&e->file));
	gate_open(&c.gate);
	assert_int_equal(pollux_fd_served(c.fd), 1);
	assert_true(await(thread_done(&c.t)));
	torture_end(&c.t, 1);
	assert_int_equal(c.r, 1);
	assert_int_equal(c.revents, POLLIN);
	assert_int_equal(pollux_read(c.fd, &v, sizeof(v)), sizeof(v));
	assert_int_equal(v, 2);
	pollux_file_put(&e->file);
	pollux_close(c.fd);
}

static void ready_beside_an_adoption(void **state)
{
	(void)state;
	adopted_at("poll_looks");
	adopted_at("poll_counts");
}

/*
 * What comes in the moment before a sleep is found there, and nobody sleeps. But what the kernel
 * has does not wait for that moment.
 */
struct spin {
	struct thread t;
	struct gate gate;
	int fd, pipe_fd, r;
	short revents[2];
};

static void polls_and_spins(struct thread *t)
{
	struct spin *s = t->arg;
	struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN},
			      {.fd = s->pipe_fd, .events = POLLIN}};

	gate_arm(&s->gate, "poll_spins");
	s->r = pollux_poll(p, 2, -1);
	for (int i = 0; i < 2; i++)
		s->revents[i] = p[i].revents;
}

static void spin_start(struct spin *s, int pipe_fd)
{
	torture_begin();
	points_delay(false);
	*s = (struct spin){.fd = new_efd(), .pipe_fd = pipe_fd};
	thread_start(&s->t, polls_and_spins, s);
}

static void spin_end(struct spin *s)
{
	torture_end(&s->t, 1);
	assert_int_equal(s->r, 1);
	pollux_close(s->fd);
}

static void spins(int pipe_fd)
{
	unsigned long slept = points_passed("poll_before_sleep");
	struct spin s;

	spin_start(&s, pipe_fd);
	assert_true(gate_reached(&s.gate));
	assert_true(put(s.fd));
	gate_open(&s.gate);
	spin_end(&s);
	assert_int_equal(s.revents[0], POLLIN);
	assert_int_equal(s.revents[1], 0);
	assert_int_equal(points_passed("poll_before_sleep"), slept);
}

static void ready_before_a_sleep(void **state)
{
	unsigned long passed;
	struct spin s;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	spins(-1);
	spins(p[0]);
	assert_int_equal(write(p[1], "", 1), 1);
	passed = points_passed("poll_spins");
	spin_start(&s, p[0]);
	spin_end(&s);
	assert_int_equal(s.revents[0], 0);
	assert_int_equal(s.revents[1], POLLIN);
	assert_int_equal(points_passed("poll_spins"), passed);
	close(p[0]);
	close(p[1]);
}

/*
 * A message goes round, and each side sleeps without end. Meanwhile an epoll begins and ends to
 * watch the sides.
 */
struct ring {
	int fd[SIDES];
	int ep;
	int stop, changing;
	unsigned long rounds, changes;
};

static void changes_items(struct thread *t)
{
	struct ring *r = t->arg;

	for (unsigned int i = 0; atomic_get(&r->changing); i++) {
		struct epoll_event ev = {.events = EPOLLIN | (i / SIDES % 2 ? EPOLLET : 0)};
		int fd = r->fd[i % SIDES];

		if (pollux_epoll_ctl(r->ep, EPOLL_CTL_ADD, fd, &ev))
			broken("an item was not added");
		sched_yield();
		if (pollux_epoll_ctl(r->ep, EPOLL_CTL_DEL, fd, NULL))
			broken("an item was not there");
		r->changes++;
	}
}

struct side {
	struct ring *ring;
	int i;
};

static void passes_on(struct thread *t)
{
	struct side *s = t->arg;
	struct ring *r = s->ring;
	struct pollfd p = {.fd = r->fd[s->i], .events = POLLIN};
	bool last;

	for (;;) {
		if (pollux_poll(&p, 1, -1) != 1 || p.revents != POLLIN || !get(p.fd)) {
			broken("%d was told of nothing", s->i);
			return;
		}
		/* Looked at before: whom the message reaches then knows it, too. */
		last = atomic_get(&r->stop);
		atomic_add(&r->rounds, s->i == 0);
		if (!put(r->fd[(s->i + 1) % SIDES]))
			broken("a write failed");
		if (last)
			return;
	}
}

static void pass_messages(void)
{
	struct side side[SIDES];
	struct thread t[SIDES + 1];
	struct ring r = {.changing = 1};
	int64_t start = now_ns();

	torture_begin();
	for (int i = 0; i < SIDES; i++)
		r.fd[i] = new_efd();
	for (int i = 0; i < SIDES; i++) {
		side[i] = (struct side){.ring = &r, .i = i};
		thread_start(&t[i], passes_on, &side[i]);
	}
	r.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(pollux_fd_served(r.ep), 1);
	thread_start(&t[SIDES], changes_items, &r);
	assert_true(put(r.fd[0]));
	while (torture_until(start, atomic_get(&r.rounds) > 100)) {
		unsigned long at = atomic_get(&r.rounds);

		if (!await(atomic_get(&r.rounds) != at || stopping()))
			broken("the message is lost after %lu rounds", at);
		sleep_ms(5);
	}
	if (torture_failed)
		_exit(1);
	/* The sides' last messages need no company. */
	atomic_set(&r.changing, 0);
	atomic_set(&r.stop, 1);
	torture_end(t, SIDES + 1);
	print_message("%lu rounds, %lu changes\n", r.rounds, r.changes);
	pollux_close(r.ep);
	for (int i = 0; i < SIDES; i++) {
		assert_int_equal(pollux_fd_served(r.fd[i]), 1);
		pollux_close(r.fd[i]);
	}
}

static void messages(void **state)
{
	(void)state;
	pass_messages();
}

/* Each sleeps at once, as on a machine of one CPU. */
static void messages_by_sleeps(void **state)
{
	(void)state;
	plx_spin_enabled = 0;
	pass_messages();
	plx_spin_enabled = 1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ready_at_any_step),
		TEST(ready_after_a_vain_write),
		TEST(ready_before_a_sleep),
		TEST(ready_while_it_leaves),
		TEST(ready_beside_an_adoption),
		TEST(leaves_before_the_time_is_over),
		TEST(messages),
		TEST(messages_by_sleeps),
	};

	return RUN(tests);
}
