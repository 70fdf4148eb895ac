/* SPDX-License-Identifier: MIT */
/*
 * A poll on in-process objects hears of everything that becomes ready after it was called, whatever
 * step it is at, whatever its bell has rung for before, and where the program wants the number of
 * that.
 */
#include "posix/table.h"

#include "torture.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#include "base/spin.h"

#define SIDES 4

static const uint64_t one = 1;

static int new_efd(void)
{
	int fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	assert_int_equal(pollux_fd_served(fd), 1);
	return fd;
}

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
	/* The number that it sleeps on. */
	int bell;
};

static void polls(struct thread *t)
{
	struct call *c = t->arg;
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	if (c->point)
		gate_arm(&c->gate, c->point);
	c->r = pollux_poll(&p, 1, -1);
	c->revents = p.revents;
}

/* Numbers that ours may have. */
#define NUMBERS 64

/* It stands at the point, with its watch in place. */
static void call_start(struct call *c, const char *point)
{
	bool hidden[NUMBERS];

	torture_begin();
	points_delay(false);
	*c = (struct call){.point = point, .fd = new_efd(), .bell = -1};
	for (int i = 0; i < NUMBERS; i++)
		hidden[i] = plx_fd_hidden(plx_fd_high() + i);
	thread_start(&c->t, polls, c);
	assert_true(gate_reached(&c->gate));
	for (int i = 0; i < NUMBERS; i++)
		if (!hidden[i] && plx_fd_hidden(plx_fd_high() + i))
			c->bell = plx_fd_high() + i;
	assert_true(c->bell >= 0);
}

static void call_ends(struct call *c)
{
	assert_true(await(thread_done(&c->t)));
	torture_end(&c->t, 1);
	assert_int_equal(c->r, 1);
	assert_int_equal(c->revents, POLLIN);
	pollux_close(c->fd);
}

/* vain: what it was rung for has gone when it looks, and the next one rings again. */
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
	call_ends(&c);
}

static void ready_at_each(bool vain)
{
	ready_at("poll_linked_look", vain);
	ready_at("poll_before_sleep", vain);
}

static void ready_at_any_step(void **state)
{
	(void)state;
	ready_at_each(false);
}

static void ready_after_a_vain_ring(void **state)
{
	(void)state;
	ready_at_each(true);
}

/* It leaves for the kernel in the middle of a call that does not wait. */
static void looks(struct thread *t)
{
	struct call *c = t->arg;
	/* More than are looked at where they are. */
	struct pollfd p[16] = {{.fd = c->fd, .events = POLLIN}};

	for (int i = 1; i < 16; i++)
		p[i].fd = -1;
	gate_arm(&c->gate, c->point);
	c->r = pollux_poll(p, 16, 0);
	c->revents = p[0].revents;
}

static void ready_while_it_leaves(void **state)
{
	struct call c = {.point = "poll_look"};

	(void)state;
	torture_begin();
	points_delay(false);
	c.fd = new_efd();
	assert_true(put(c.fd));
	thread_start(&c.t, looks, &c);
	assert_true(gate_reached(&c.gate));
	pollux_escape(c.fd);
	gate_open(&c.gate);
	call_ends(&c);
}

static void polls_for_a_while(struct thread *t)
{
	struct call *c = t->arg;
	struct pollfd p = {.fd = c->fd, .events = POLLIN, .revents = POLLIN};

	c->r = pollux_poll(&p, 1, 500);
	c->revents = p.revents;
}

/* Its time is over, and it has found that the object is here still; what it looks at is frozen. */
static void leaves_when_the_time_is_over(void **state)
{
	const uint64_t much = UINT64_MAX - 1;
	struct call c = {0};
	uint64_t v;

	(void)state;
	torture_begin();
	points_delay(false);
	c.fd = new_efd();
	/* From now on it is what it is when it is frozen, a word of its own. */
	assert_int_equal(pollux_write(c.fd, &much, sizeof(much)), sizeof(much));
	assert_int_equal(pollux_read(c.fd, &v, sizeof(v)), sizeof(v));
	thread_start(&c.t, polls_for_a_while, &c);
	assert_true(thread_asleep(&c.t));
	gate_arm_any(&c.gate, "efd_look");
	assert_true(gate_reached(&c.gate));
	pollux_escape(c.fd);
	gate_open(&c.gate);
	torture_end(&c.t, 1);
	assert_int_equal(c.r, 0);
	assert_int_equal(c.revents, 0);
	pollux_close(c.fd);
}

/*
 * What comes in the moment before a sleep is found there: nobody links a watch, rings or sleeps.
 * But what the kernel has does not wait for that moment.
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

	/* Who has slept has a bell. */
	if (pollux_poll(p, 1, -1) != 1 || !get(s->fd))
		broken("the first poll");
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
	assert_true(thread_asleep(&s->t));
}

static void spin_end(struct spin *s)
{
	torture_end(&s->t, 1);
	assert_int_equal(s->r, 1);
	pollux_close(s->fd);
}

static void spins(int pipe_fd)
{
	unsigned long rung, slept;
	struct spin s;

	spin_start(&s, pipe_fd);
	rung = points_passed("poll_rung");
	slept = points_passed("poll_before_sleep");
	assert_true(put(s.fd));
	assert_true(gate_reached(&s.gate));
	assert_int_equal(points_passed("poll_rung"), rung + 1);
	assert_true(put(s.fd));
	gate_open(&s.gate);
	spin_end(&s);
	assert_int_equal(s.revents[0], POLLIN);
	assert_int_equal(s.revents[1], 0);
	assert_int_equal(points_passed("poll_rung"), rung + 1);
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
	spin_start(&s, p[0]);
	passed = points_passed("poll_spins");
	assert_int_equal(write(p[1], "", 1), 1);
	assert_true(put(s.fd));
	spin_end(&s);
	assert_int_equal(s.revents[0], 0);
	assert_int_equal(s.revents[1], POLLIN);
	assert_int_equal(points_passed("poll_spins"), passed);
	close(p[0]);
	close(p[1]);
}

struct taker {
	struct thread t;
	struct gate gate;
	const char *point;
	int from, number, r;
};

static void takes(struct thread *t)
{
	struct taker *k = t->arg;

	if (k->point)
		gate_arm(&k->gate, k->point);
	k->r = pollux_dup2(k->from, k->number);
}

/* The program puts something that is never ready at the number that is slept on. */
static void number_taken_in_a_sleep(void **state)
{
	struct taker k = {0};
	struct call c;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	call_start(&c, "poll_before_sleep");
	k.number = c.bell;
	k.from = p[0];
	gate_open(&c.gate);
	assert_true(thread_asleep(&c.t));
	thread_start(&k.t, takes, &k);
	thread_join(&k.t);
	assert_int_equal(k.r, k.number);
	assert_true(put(c.fd));
	call_ends(&c);
	pollux_close(k.number);
	close(p[0]);
	close(p[1]);
}

/* The same where the call has read the number, and comes to its sleep when the bell has moved. */
static void number_taken_before_a_sleep(void **state)
{
	struct taker k = {.point = "hidden_left"};
	struct call c;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	call_start(&c, "poll_before_sleep");
	k.number = c.bell;
	k.from = p[0];
	thread_start(&k.t, takes, &k);
	assert_true(gate_reached(&k.gate));
	/* It is told of the move in its sleep, and goes to another one. */
	gate_open(&k.gate);
	gate_open(&c.gate);
	thread_join(&k.t);
	assert_int_equal(k.r, k.number);
	assert_true(put(c.fd));
	call_ends(&c);
	pollux_close(k.number);
	close(p[0]);
	close(p[1]);
}

static struct taker handled;

static void handler(int sig)
{
	(void)sig;
	handled.r = pollux_dup2(handled.from, handled.number);
	atomic_set(&handled.point, "done");
}

/* By a handler that runs in the thread itself, when it has read the number. */
static void number_taken_by_a_handler(void **state)
{
	struct sigaction sa = {.sa_handler = handler};
	struct call c;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	call_start(&c, "poll_before_sleep");
	handled = (struct taker){.from = p[0], .number = c.bell};
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	assert_int_equal(pthread_kill(c.t.id, SIGUSR1), 0);
	assert_true(await(atomic_get(&handled.point)));
	assert_int_equal(handled.r, handled.number);
	gate_open(&c.gate);
	assert_true(thread_asleep(&c.t));
	assert_true(put(c.fd));
	call_ends(&c);
	pollux_close(handled.number);
	close(p[0]);
	close(p[1]);
}

/* Its thread is not in the child: nor is its bell. */
static void bell_in_a_child(void **state)
{
	struct call c;
	int status;
	pid_t pid;

	(void)state;
	call_start(&c, "poll_before_sleep");
	pid = pollux_fork();
	if (pid == 0)
		_exit(fcntl(c.bell, F_GETFD) >= 0);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	gate_open(&c.gate);
	assert_true(put(c.fd));
	call_ends(&c);
}

/*
 * A wake stands on the watch of a poll that it has rung for. That poll is over, and the next one of
 * its thread, of the same file or another, sleeps: for what the wake has not to do with. The wake
 * goes on to whom it has still to call, and to nobody else.
 */
struct again {
	struct thread t;
	int fd, next;
	int r[2];
	short revents[2];
};

static const uint64_t much = UINT64_MAX - 1;

static void polls_again(struct thread *t)
{
	struct again *a = t->arg;
	struct pollfd p = {.fd = a->fd, .events = POLLIN};

	int r = pollux_poll(&p, 1, -1);

	a->revents[0] = p.revents;
	atomic_set(&a->r[0], r);
	p = (struct pollfd){.fd = a->next, .events = POLLOUT};
	a->r[1] = pollux_poll(&p, 1, -1);
	a->revents[1] = p.revents;
}

static void fills(struct thread *t)
{
	struct taker *k = t->arg;

	gate_arm(&k->gate, "poll_rung");
	k->r = (int)pollux_write(k->number, &much, sizeof(much));
}

static int edge_new(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);

	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	return ep;
}

static int edges(int ep)
{
	struct epoll_event ev;

	return pollux_epoll_wait(ep, &ev, 1, 0);
}

static void polled_again(bool same)
{
	struct again a = {0};
	struct taker k = {0};
	int front, behind, there;
	uint64_t v;

	torture_begin();
	points_delay(false);
	k.number = a.fd = new_efd();
	a.next = same ? a.fd : new_efd();
	if (!same)
		assert_int_equal(pollux_write(a.next, &much, sizeof(much)), sizeof(much));
	behind = edge_new(a.fd);
	there = edge_new(a.next);
	assert_int_equal(edges(there), !same);
	thread_start(&a.t, polls_again, &a);
	assert_true(thread_asleep(&a.t));
	front = same ? edge_new(a.fd) : -1;
	thread_start(&k.t, fills, &k);
	assert_true(gate_reached(&k.gate));
	assert_true(await(atomic_get(&a.r[0]) == 1));
	assert_true(thread_asleep(&a.t));
	if (same)
		assert_int_equal(edges(front), 1);
	gate_open(&k.gate);
	thread_join(&k.t);
	assert_int_equal(k.r, sizeof(much));
	assert_int_equal(edges(behind), 1);
	assert_int_equal(edges(there), same);
	if (same)
		assert_int_equal(edges(front), 0);
	assert_int_equal(pollux_read(a.next, &v, sizeof(v)), sizeof(v));
	torture_end(&a.t, 1);
	assert_int_equal(a.revents[0], POLLIN);
	assert_int_equal(a.r[1], 1);
	assert_int_equal(a.revents[1], POLLOUT);
	pollux_close(front);
	pollux_close(behind);
	pollux_close(there);
	pollux_close(a.fd);
	if (!same)
		pollux_close(a.next);
}

static void polled_again_while_a_wake_is_under_way(void **state)
{
	(void)state;
	polled_again(true);
	polled_again(false);
}

/*
 * A message goes round, and each side sleeps without end. Meanwhile items of an epoll come in front
 * of the sides and behind them, and go: what a side used for one call may serve the next, or not.
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
		struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
		int fd = r->fd[i % SIDES];

		if (i / SIDES % 2)
			ev.events |= EPOLLEXCLUSIVE;
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
	for (int i = 0; i < SIDES; i++)
		pollux_close(r.fd[i]);
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
		TEST(ready_after_a_vain_ring),
		TEST(ready_before_a_sleep),
		TEST(ready_while_it_leaves),
		TEST(leaves_when_the_time_is_over),
		TEST(number_taken_in_a_sleep),
		TEST(number_taken_before_a_sleep),
		TEST(number_taken_by_a_handler),
		TEST(bell_in_a_child),
		TEST(polled_again_while_a_wake_is_under_way),
		TEST(messages),
		TEST(messages_by_sleeps),
	};

	reach_all_numbers();
	return RUN(tests);
}
