/* SPDX-License-Identifier: MIT */
/*
 * An object leaves an epoll for the kernel while other threads use what is the kernel's in that
 * epoll already. Where the object's item is not to report again, the kernel's ready list is emptied
 * for a moment: nobody may see that, and what is registered meanwhile is not lost.
 */
#include "torture.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <pollux/posix.h>

#define SOCKET_DATA 7
#define OBJECT_DATA 1

struct world {
	struct gate gate, spill;
	int ep, fd, sock, peer, result, done, escaped;
	struct epoll_event ev;
};

static void add(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
}

/* A socket with a byte. */
static void begin_empty(struct world *w)
{
	int pair[2];

	torture_begin();
	points_delay(false);
	*w = (struct world){.result = -1};
	w->ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	w->sock = pair[0];
	w->peer = pair[1];
	assert_int_equal(write(w->peer, "x", 1), 1);
}

/* An edge that has been collected. */
static void add_collected(struct world *w)
{
	w->fd = pollux_eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	add(w->ep, w->fd, EPOLLIN | EPOLLET, OBJECT_DATA);
	assert_int_equal(pollux_epoll_wait(w->ep, &w->ev, 1, 0), 1);
	assert_true(pollux_fd_served(w->fd));
}

static void begin(struct world *w)
{
	begin_empty(w);
	add_collected(w);
}

static void end(struct world *w)
{
	pollux_close(w->ep);
	pollux_close(w->fd);
	close(w->sock);
	close(w->peer);
}

static void escaper(struct thread *t)
{
	struct world *w = t->arg;

	pollux_escape(w->fd);
	atomic_set(&w->escaped, 1);
}

static void arms(struct thread *t)
{
	struct world *w = t->arg;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = SOCKET_DATA};

	gate_arm(&w->gate, "ctl_beside");
	w->result = pollux_epoll_ctl(w->ep, EPOLL_CTL_MOD, w->sock, &ev);
	atomic_set(&w->done, 1);
}

static bool reached_soon(struct gate *g)
{
	for (int i = 0; i < 100 && !atomic_get(&g->reached); i++)
		sleep_ms(1);
	return atomic_get(&g->reached);
}

/* Whichever of the two goes first. */
static void armed_while_the_list_is_empty(void **state)
{
	struct thread t[2];
	struct world w;

	(void)state;
	begin(&w);
	add(w.ep, w.sock, EPOLLIN | EPOLLONESHOT, SOCKET_DATA);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 0);
	gate_arm_any(&w.spill, "spill_registrations");
	thread_start(&t[0], arms, &w);
	assert_true(gate_reached(&w.gate));
	thread_start(&t[1], escaper, &w);
	(void)reached_soon(&w.spill);
	gate_open(&w.gate);
	if (atomic_get(&w.spill.reached))
		sleep_ms(20);
	gate_open(&w.spill);
	torture_end(t, 2);
	assert_int_equal(w.result, 0);
	assert_true(w.escaped);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	assert_int_equal(w.ev.data.u64, SOCKET_DATA);
	end(&w);
}

static void arms_before(struct thread *t)
{
	struct world *w = t->arg;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = SOCKET_DATA};

	gate_arm(&w->gate, "ctl_passes");
	w->result = pollux_epoll_ctl(w->ep, EPOLL_CTL_MOD, w->sock, &ev);
	atomic_set(&w->done, 1);
}

/* It was on its way to the kernel when there was no object yet. */
static void armed_from_before_the_first_object(void **state)
{
	struct thread t[2];
	struct world w;

	(void)state;
	begin_empty(&w);
	add(w.ep, w.sock, EPOLLIN | EPOLLONESHOT, SOCKET_DATA);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	thread_start(&t[0], arms_before, &w);
	assert_true(gate_reached(&w.gate));
	add_collected(&w);
	gate_arm_any(&w.spill, "spill_registrations");
	thread_start(&t[1], escaper, &w);
	assert_true(gate_reached(&w.spill));
	gate_open(&w.gate);
	for (int i = 0; i < 20 && !atomic_get(&w.done); i++)
		sleep_ms(1);
	gate_open(&w.spill);
	torture_end(t, 2);
	assert_int_equal(w.result, 0);
	assert_true(w.escaped);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	assert_int_equal(w.ev.data.u64, SOCKET_DATA);
	end(&w);
}

static void looker(struct thread *t)
{
	struct world *w = t->arg;

	w->result = pollux_epoll_wait(w->ep, &w->ev, 1, 0);
	atomic_set(&w->done, 1);
}

static void looked_at_while_the_list_is_empty(void **state)
{
	struct thread t[2];
	struct world w;

	(void)state;
	begin(&w);
	add(w.ep, w.sock, EPOLLIN | EPOLLET, SOCKET_DATA);
	gate_arm_any(&w.spill, "spill_collected");
	thread_start(&t[0], escaper, &w);
	assert_true(gate_reached(&w.spill));
	thread_start(&t[1], looker, &w);
	sleep_ms(20);
	gate_open(&w.spill);
	torture_end(t, 2);
	assert_int_equal(w.result, 1);
	assert_int_equal(w.ev.data.u64, SOCKET_DATA);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(armed_while_the_list_is_empty),
		TEST(armed_from_before_the_first_object),
		TEST(looked_at_while_the_list_is_empty),
	};

	return RUN(tests);
}
