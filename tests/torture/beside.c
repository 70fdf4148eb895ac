/* SPDX-License-Identifier: MIT */
/*
 * An object leaves an epoll for the kernel while other threads use what is the kernel's in that
 * epoll already: what they register meanwhile is there, and what they find is right. Nor is lost
 * what is written meanwhile. An edge that was collected before may be reported once more.
 */
#include "cache/posix.h"

#include "caller.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <pollux/posix.h>

#define SOCKET_DATA 7
#define OBJECT_DATA 1

struct world {
	struct gate gate, evict;
	/* Where who arms stops, and what leaves. */
	const char *at;
	int leaves;
	int ep, fd, sock, peer, result, done, escaped;
	struct epoll_event ev;
};

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
	w->fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	add_as(w->ep, w->fd, EPOLLIN | EPOLLET, OBJECT_DATA);
	assert_int_equal(pollux_write(w->fd, &(uint64_t){1}, 8), 8);
	assert_int_equal(pollux_epoll_wait(w->ep, &w->ev, 1, 0), 1);
	assert_true(pollux_fd_served(w->fd));
	w->leaves = w->fd;
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

	pollux_escape(w->leaves);
	atomic_set(&w->escaped, 1);
}

static void arms(struct thread *t)
{
	struct world *w = t->arg;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = SOCKET_DATA};

	gate_arm(&w->gate, w->at);
	w->result = pollux_epoll_ctl(w->ep, EPOLL_CTL_MOD, w->sock, &ev);
	atomic_set(&w->done, 1);
}

/* One event with these data, and perhaps the collected edge once more. */
static void assert_heard(struct world *w, uint64_t data)
{
	struct epoll_event ev[4];
	int n = pollux_epoll_wait(w->ep, ev, 4, 0), heard = 0;

	assert_uint_in_range(n, 1, 2);
	for (int i = 0; i < n; i++)
		heard += ev[i].data.u64 == data;
	assert_int_equal(heard, 1);
	assert_true(n == 1 || ev[0].data.u64 == OBJECT_DATA || ev[1].data.u64 == OBJECT_DATA);
}

/* Who arms and the eviction go on; what was armed is there. */
static void armed_is_there(struct world *w, struct thread *t)
{
	torture_end(t, 2);
	assert_int_equal(w->result, 0);
	assert_true(w->escaped);
	assert_heard(w, SOCKET_DATA);
	end(w);
}

/* Whichever of the two goes first. */
static void armed_while_it_leaves(const char *at, const char *evict_at, bool epoll)
{
	struct thread t[2];
	struct world w;

	begin(&w);
	w.at = at;
	if (epoll)
		w.leaves = w.ep;
	add_as(w.ep, w.sock, EPOLLIN | EPOLLONESHOT, SOCKET_DATA);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 0);
	gate_arm_any(&w.evict, evict_at);
	start_to_gate(&t[0], arms, &w, &w.gate);
	thread_start(&t[1], escaper, &w);
	assert_true(gate_reached(&w.evict));
	gate_open(&w.gate);
	sleep_ms(20);
	gate_open(&w.evict);
	armed_is_there(&w, t);
}

static void armed_while_an_object_leaves(void **state)
{
	(void)state;
	armed_while_it_leaves("ctl_decided", "flush_begun", false);
	armed_while_it_leaves("ctl_decided", "flush_written", false);
}

/* The epoll goes as a whole, after who arms has looked at it. */
static void armed_while_its_epoll_leaves(void **state)
{
	(void)state;
	armed_while_it_leaves("ctl_decided", "evict_epoll", true);
	armed_while_it_leaves("ctl_decided", "flush_written", true);
}

static void looker(struct thread *t)
{
	struct world *w = t->arg;

	w->result = pollux_epoll_wait(w->ep, &w->ev, 1, 0);
	atomic_set(&w->done, 1);
}

/* The socket is reported once. */
static void looked_at_while_an_object_leaves(void **state)
{
	struct thread t[2];
	struct world w;

	(void)state;
	begin(&w);
	add_as(w.ep, w.sock, EPOLLIN | EPOLLET, SOCKET_DATA);
	gate_arm_any(&w.evict, "flush_written");
	start_to_gate(&t[0], escaper, &w, &w.evict);
	thread_start(&t[1], looker, &w);
	thread_join(&t[1]);
	gate_open(&w.evict);
	torture_end(t, 1);
	assert_int_equal(w.result, 1);
	if (w.ev.data.u64 == SOCKET_DATA) {
		while (pollux_epoll_wait(w.ep, &w.ev, 1, 0) > 0)
			assert_int_equal(w.ev.data.u64, OBJECT_DATA);
	} else {
		assert_int_equal(w.ev.data.u64, OBJECT_DATA);
		assert_heard(&w, SOCKET_DATA);
	}
	end(&w);
}

static void writes(struct thread *t)
{
	struct world *w = t->arg;

	w->result = (int)pollux_write(w->fd, &(uint64_t){1}, 8);
	atomic_set(&w->done, 1);
}

/* An edge on top of one that has been collected: it is another one. */
static void written_while_it_moves(void **state)
{
	struct thread t[2];
	struct world w;

	(void)state;
	begin(&w);
	add_as(w.ep, w.sock, EPOLLIN, SOCKET_DATA);
	assert_int_equal(read(w.sock, &(char){0}, 1), 1);
	gate_arm_any(&w.evict, "flush_written");
	start_to_gate(&t[0], escaper, &w, &w.evict);
	thread_start(&t[1], writes, &w);
	sleep_ms(20);
	gate_open(&w.evict);
	torture_end(t, 2);
	assert_int_equal(w.result, 8);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	assert_int_equal(w.ev.data.u64, OBJECT_DATA);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 0);
	end(&w);
}

static void writes_slowly(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, "push_before_link");
	w->result = (int)pollux_write(w->fd, &(uint64_t){1}, 8);
}

/* It has changed the count, and has not told anybody yet. */
static void told_of_while_it_leaves(void **state)
{
	struct thread t[2];
	struct world w;

	(void)state;
	begin(&w);
	add_as(w.ep, w.sock, EPOLLIN, SOCKET_DATA);
	assert_int_equal(read(w.sock, &(char){0}, 1), 1);
	start_to_gate(&t[1], writes_slowly, &w, &w.gate);
	/* It may wait for the other one, who is between two steps. */
	thread_start(&t[0], escaper, &w);
	sleep_ms(20);
	gate_open(&w.gate);
	torture_end(t, 2);
	assert_int_equal(w.result, 8);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 1);
	assert_int_equal(w.ev.data.u64, OBJECT_DATA);
	assert_int_equal(pollux_epoll_wait(w.ep, &w.ev, 1, 0), 0);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(armed_while_an_object_leaves),	TEST(armed_while_its_epoll_leaves),
		TEST(looked_at_while_an_object_leaves), TEST(written_while_it_moves),
		TEST(told_of_while_it_leaves),
	};

	plx_px_init();
	return RUN(tests);
}
