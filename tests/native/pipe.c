/* SPDX-License-Identifier: MIT */
/*
 * The pipe as an object, mostly in step with one of the kernel's: the same calls on both,
 * and the same results, masks, sizes and events.
 */
#include "native.h"

#include <pollux/pipe.h>
#include <sys/ioctl.h>

#define ROOM 262144

static struct pollux_pipe *pipe_new(int flags)
{
	struct pollux_pipe *p = NULL;

	assert_int_equal(pollux_pipe_new(&p, flags), 0);
	return p;
}

static void pipe_put(struct pollux_pipe *p)
{
	pollux_file_put(pollux_pipe_read_end(p));
	pollux_file_put(pollux_pipe_write_end(p));
}

static uint32_t mask_r(struct pollux_pipe *p)
{
	return pollux_file_poll(pollux_pipe_read_end(p));
}

static uint32_t mask_w(struct pollux_pipe *p)
{
	return pollux_file_poll(pollux_pipe_write_end(p));
}

static long put(struct pollux_pipe *p, size_t n)
{
	static char buf[ROOM];

	return pollux_pipe_write(p, buf, n, 0);
}

static long take(struct pollux_pipe *p, size_t n)
{
	static char buf[ROOM];

	return pollux_pipe_read(p, buf, n, 0);
}

#define IN_BITS (EPOLLIN | EPOLLRDNORM)
#define OUT_BITS (EPOLLOUT | EPOLLWRNORM)

/* --- rules one by one ---------------------------------------------------------------- */

static void PIPE_03_sixteen_slots_of_a_page(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	long n = 0;

	(void)state;
	assert_int_equal(pollux_pipe_capacity(p), 65536);
	assert_int_equal(put(p, 100000), 65536);
	assert_int_equal(put(p, 1), -EAGAIN);
	assert_int_equal(take(p, ROOM), 65536);
	/* Bytes one at a time fill it as well. */
	while (put(p, 1) == 1)
		n++;
	assert_int_equal(n, 65536);
	assert_int_equal(pollux_pipe_bytes(p), 65536);
	assert_int_equal(take(p, ROOM), 65536);
	/* What does not fit into the rest of a page leaves it. */
	for (n = 0; put(p, 3000) == 3000; n++)
		;
	assert_int_equal(n, 16);
	pipe_put(p);
}

static void PIPE_04_PIPE_05_masks_and_closed_ends(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct pollux_file *r = pollux_pipe_read_end(p), *w = pollux_pipe_write_end(p);

	(void)state;
	assert_int_equal(mask_r(p), 0);
	assert_int_equal(mask_w(p), OUT_BITS);
	assert_int_equal(put(p, 65536), 65536);
	assert_int_equal(mask_r(p), IN_BITS);
	assert_int_equal(mask_w(p), 0);
	pollux_file_put(w);
	assert_int_equal(mask_r(p), IN_BITS | EPOLLHUP);
	assert_int_equal(take(p, 65535), 65535);
	assert_int_equal(take(p, 5), 1);
	assert_int_equal(mask_r(p), EPOLLHUP);
	assert_int_equal(take(p, 5), 0);
	pollux_file_put(r);

	p = pipe_new(0);
	pollux_file_put(pollux_pipe_read_end(p));
	assert_int_equal(mask_w(p), OUT_BITS | EPOLLERR);
	assert_int_equal(put(p, 1), -EPIPE);
	assert_int_equal(put(p, 0), 0);
	pollux_file_put(pollux_pipe_write_end(p));

	p = pipe_new(0);
	assert_int_equal(put(p, 65536), 65536);
	pollux_file_put(pollux_pipe_read_end(p));
	assert_int_equal(mask_w(p), EPOLLERR);
	pollux_file_put(pollux_pipe_write_end(p));
}

static void PIPE_06_PIPE_11_room_is_by_slot(void **state)
{
	struct pollux_pipe *p = pipe_new(0);

	(void)state;
	for (int i = 0; i < 16; i++)
		assert_int_equal(put(p, 4096), 4096);
	assert_int_equal(take(p, 4095), 4095);
	assert_int_equal(mask_w(p), 0);
	assert_int_equal(put(p, 1), -EAGAIN);
	assert_int_equal(take(p, 1), 1);
	assert_int_equal(mask_w(p), OUT_BITS);
	assert_int_equal(put(p, 1), 1);
	assert_int_equal(put(p, 4096), -EAGAIN);
	assert_int_equal(put(p, 4095), 4095);
	pipe_put(p);
}

static void PIPE_14_packets(void **state)
{
	struct pollux_pipe *p = pipe_new(POLLUX_PIPE_PACKETS);
	int n = 0;

	(void)state;
	assert_int_equal(put(p, 3), 3);
	assert_int_equal(put(p, 5), 5);
	assert_int_equal(take(p, 100), 3);
	assert_int_equal(take(p, 2), 2);
	assert_int_equal(take(p, 100), -EAGAIN);
	while (put(p, 1) == 1)
		n++;
	assert_int_equal(n, 16);
	assert_int_equal(pollux_pipe_bytes(p), 16);
	while (take(p, 100) > 0)
		;
	pollux_pipe_set_packets(p, 0);
	assert_int_equal(put(p, 3), 3);
	assert_int_equal(put(p, 5), 5);
	assert_int_equal(take(p, 100), 8);
	pipe_put(p);
}

static void PIPE_15_capacity_can_be_changed(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct pollux_ep *ep = ep_new();

	(void)state;
	ep_add(ep, pollux_pipe_write_end(p), 0, EPOLLOUT | EPOLLET, 'w');
	assert_order(ep, 8, "w");
	assert_int_equal(pollux_pipe_set_capacity(p, 0), 4096);
	assert_order(ep, 8, "w");
	assert_int_equal(put(p, 5000), 4096);
	assert_int_equal(pollux_pipe_set_capacity(p, 5000), 8192);
	assert_order(ep, 8, "w");
	assert_int_equal(put(p, 5000), 4096);
	assert_int_equal(pollux_pipe_set_capacity(p, 4096), -EBUSY);
	assert_none(ep);
	assert_int_equal(pollux_pipe_set_capacity(p, ROOM), ROOM);
	assert_int_equal(put(p, ROOM), ROOM - 8192);
	assert_int_equal(take(p, ROOM), ROOM);
	assert_int_equal(pollux_pipe_set_capacity(p, ROOM + 1), -EINVAL);
	ep_put(ep);
	pipe_put(p);
}

static void PIPE_21_a_closed_end_is_told_to_the_other(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct pollux_ep *ep = ep_new();

	(void)state;
	ep_add(ep, pollux_pipe_read_end(p), 0, EPOLLIN | EPOLLET, 'r');
	pollux_file_get(pollux_pipe_write_end(p));
	pollux_file_put(pollux_pipe_write_end(p));
	assert_none(ep);
	pollux_file_put(pollux_pipe_write_end(p));
	assert_one(ep, EPOLLHUP, 'r');
	pollux_file_put(pollux_pipe_read_end(p));

	p = pipe_new(0);
	ep_add(ep, pollux_pipe_write_end(p), 0, EPOLLET, 'w');
	pollux_file_put(pollux_pipe_read_end(p));
	assert_one(ep, EPOLLERR, 'w');
	pollux_file_put(pollux_pipe_write_end(p));
	ep_put(ep);
}

static void unknown_flags_are_refused(void **state)
{
	struct pollux_pipe *p;

	(void)state;
	assert_int_equal(pollux_pipe_new(&p, 2), -EINVAL);
}

/* --- sleepers ------------------------------------------------------------------------ */

struct sleeper {
	struct thread t;
	struct pollux_pipe *p;
	bool writes;
	size_t n;
	long r;
	char buf[ROOM];
};

static void sleeper_main(struct thread *t)
{
	struct sleeper *s = t->arg;

	s->r = s->writes ? pollux_pipe_write(s->p, s->buf, s->n, 1)
			 : pollux_pipe_read(s->p, s->buf, s->n, 1);
}

/* Returns when the thread sleeps in its call. */
static struct sleeper *sleeper_new(struct pollux_pipe *p, bool writes, size_t n)
{
	struct sleeper *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->p = p;
	s->writes = writes;
	s->n = n;
	thread_start(&s->t, sleeper_main, s);
	assert_true(thread_asleep(&s->t));
	return s;
}

static void sleeper_gets(struct sleeper *s, long want)
{
	thread_join(&s->t);
	assert_int_equal(s->r, want);
	free(s);
}

static void sleeper_stays(struct sleeper *s)
{
	sleep_ms(QUIET_MS);
	/* What it could do it has done, however long it had to wait for a CPU. */
	assert_true(thread_asleep(&s->t));
	assert_false(thread_done(&s->t));
}

static void PIPE_24_one_write_wakes_one_reader(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct sleeper *a, *b, *c;

	(void)state;
	a = sleeper_new(p, false, 1);
	b = sleeper_new(p, false, 1);
	c = sleeper_new(p, false, 1);
	assert_int_equal(put(p, 1), 1);
	sleeper_gets(a, 1);
	sleeper_stays(b);
	sleeper_stays(c);
	/* What the first leaves wakes the next. */
	assert_int_equal(put(p, 2), 2);
	sleeper_gets(b, 1);
	sleeper_gets(c, 1);
	a = sleeper_new(p, false, 1);
	b = sleeper_new(p, false, 1);
	pollux_file_put(pollux_pipe_write_end(p));
	sleeper_gets(a, 0);
	sleeper_gets(b, 0);
	pollux_file_put(pollux_pipe_read_end(p));
}

static void PIPE_12_PIPE_18_a_large_write_sleeps_until_all_is_written(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct pollux_ep *ep = ep_new();
	struct sleeper *w;

	(void)state;
	ep_add(ep, pollux_pipe_read_end(p), 0, EPOLLIN | EPOLLET, 'r');
	w = sleeper_new(p, true, 150000);
	assert_one(ep, EPOLLIN, 'r');
	assert_int_equal(take(p, 65536), 65536);
	sleeper_stays(w);
	/* The pipe was empty again when the writer went on. */
	assert_one(ep, EPOLLIN, 'r');
	assert_int_equal(take(p, 65536), 65536);
	thread_await(&w->t);
	assert_one(ep, EPOLLIN, 'r');
	assert_int_equal(take(p, ROOM), 150000 - 2 * 65536);
	sleeper_gets(w, 150000);
	ep_put(ep);
	pipe_put(p);
}

static void PIPE_11_a_small_write_sleeps_until_a_slot_is_free(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct sleeper *a, *b;

	(void)state;
	assert_int_equal(put(p, 65536), 65536);
	a = sleeper_new(p, true, 100);
	b = sleeper_new(p, true, 100);
	assert_int_equal(take(p, 4095), 4095);
	sleeper_stays(a);
	assert_int_equal(take(p, 1), 1);
	/* One slot: the other would have to continue it, and does not after a sleep. */
	sleeper_gets(a, 100);
	sleeper_stays(b);
	assert_int_equal(take(p, 4096), 4096);
	sleeper_gets(b, 100);
	assert_int_equal(pollux_pipe_bytes(p), 14 * 4096 + 200);
	pipe_put(p);
}

static void PIPE_10_readers_that_go_end_a_write(void **state)
{
	struct pollux_pipe *p = pipe_new(0);
	struct sleeper *a, *b;

	(void)state;
	assert_int_equal(put(p, 61440), 61440);
	a = sleeper_new(p, true, 10000);
	b = sleeper_new(p, true, 10);
	pollux_file_put(pollux_pipe_read_end(p));
	sleeper_gets(a, 4096);
	sleeper_gets(b, -EPIPE);
	pollux_file_put(pollux_pipe_write_end(p));
}

static void on_signal(int sig)
{
	(void)sig;
}

static void PIPE_12_a_handler_interrupts(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct pollux_pipe *p = pipe_new(0);
	struct sleeper *s;

	(void)state;
	sigaction(SIGUSR1, &sa, NULL);
	s = sleeper_new(p, false, 1);
	pthread_kill(s->t.id, SIGUSR1);
	sleeper_gets(s, -EINTR);
	assert_int_equal(put(p, 61440), 61440);
	s = sleeper_new(p, true, 10000);
	/* Nothing but a part has been written: no restart could tell. */
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &sa, NULL);
	pthread_kill(s->t.id, SIGUSR1);
	sleeper_gets(s, 4096);
	s = sleeper_new(p, true, 10);
	pthread_kill(s->t.id, SIGUSR1);
	sleeper_stays(s);
	assert_int_equal(take(p, 4096), 4096);
	sleeper_gets(s, 10);
	pipe_put(p);
	sa.sa_handler = SIG_DFL;
	sigaction(SIGUSR1, &sa, NULL);
}

/* --- in step with the kernel --------------------------------------------------------- */

static uint32_t seed;

static uint32_t any(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % n;
}

struct both {
	struct pollux_pipe *p;
	struct pollux_ep *ep;
	int fd[2];
	int kep;
	bool closed[2];
	unsigned long step;
	char what[80];
};

static long kernel_result(ssize_t r)
{
	return r < 0 ? -errno : r;
}

static uint32_t kernel_mask(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM};
	int ep = epoll_create1(EPOLL_CLOEXEC);

	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	ev.events = 0;
	epoll_wait(ep, &ev, 1, 0);
	close(ep);
	return ev.events;
}

#define same(b, what_, ours_, kernels_)                                                            \
	do {                                                                                       \
		long long o_ = (long long)(ours_), k_ = (long long)(kernels_);                     \
		if (o_ != k_) {                                                                    \
			print_error("step %lu, %s: %s is %lld, the kernel's %lld\n", (b)->step,    \
				    (b)->what, what_, o_, k_);                                     \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

static void both_events(struct both *b)
{
	struct epoll_event ours[4], kernels[4];
	int n = pollux_ep_wait(b->ep, ours, 4, 0), k = epoll_wait(b->kep, kernels, 4, 0);

	same(b, "number of events", n, k);
	for (int i = 0; i < n; i++) {
		same(b, "event", ours[i].events, kernels[i].events);
		same(b, "data", ours[i].data.u64, kernels[i].data.u64);
	}
}

static void both_state(struct both *b)
{
	int n = 0;

	if (!b->closed[0]) {
		same(b, "mask of the read end", mask_r(b->p), kernel_mask(b->fd[0]));
		ioctl(b->fd[0], FIONREAD, &n);
		same(b, "bytes", pollux_pipe_bytes(b->p), n);
	}
	if (!b->closed[1])
		same(b, "mask of the write end", mask_w(b->p), kernel_mask(b->fd[1]));
}

/*
 * Sizes that matter: single bytes, words, around a page, several pages. A round that keeps
 * to sizes below a page goes through all that may become of records in one slot.
 */
static bool small_sizes;

static size_t both_size(void)
{
	if (small_sizes)
		return 1 + any(any(2) ? 12 : 3000);
	switch (any(10)) {
	case 0:
	case 1:
		return 1 + any(8);
	case 2:
		return 9 + any(90);
	case 3:
		return 1 + any(4096);
	case 4:
		return 4090 + any(12);
	case 5:
		return 4096 * (1 + any(16));
	case 6:
		return 1 + any(70000);
	case 7:
		return 1 + any(2000);
	default:
		return 1;
	}
}

static void both_write(struct both *b, size_t n)
{
	static char buf[ROOM];
	static unsigned char next;

	for (size_t i = 0; i < n; i++)
		buf[i] = next++;
	snprintf(b->what, sizeof(b->what), "write of %zu", n);
	same(b, "result", pollux_pipe_write(b->p, buf, n, 0),
	     kernel_result(write(b->fd[1], buf, n)));
}

static void both_read(struct both *b, size_t n)
{
	static char ours[ROOM], kernels[ROOM];
	long r = pollux_pipe_read(b->p, ours, n, 0);

	snprintf(b->what, sizeof(b->what), "read of %zu", n);
	same(b, "result", r, kernel_result(read(b->fd[0], kernels, n)));
	if (r > 0)
		same(b, "comparison of bytes", memcmp(ours, kernels, r), 0);
}

static void both_step(struct both *b)
{
	uint32_t what = any(100);
	size_t n;

	if (what < 44 && !b->closed[1]) {
		for (uint32_t k = any(8) ? 1 : any(400); k; k--)
			both_write(b, any(3) ? 1 : both_size());
	} else if (what < 88 && !b->closed[0]) {
		both_read(b, both_size());
	} else if (what < 90 && !b->closed[0]) {
		both_read(b, ROOM);
	} else if (what < 92 && !b->closed[1]) {
		int on = any(2);

		snprintf(b->what, sizeof(b->what), "packets %d", on);
		pollux_pipe_set_packets(b->p, on);
		fcntl(b->fd[1], F_SETFL, O_NONBLOCK | (on ? O_DIRECT : 0));
	} else if (what < (small_sizes ? 97 : 94) && !b->closed[0]) {
		n = 4096ul << any(7);
		snprintf(b->what, sizeof(b->what), "capacity %zu", n);
		same(b, "result", pollux_pipe_set_capacity(b->p, n),
		     kernel_result(fcntl(b->fd[0], F_SETPIPE_SZ, n)));
	} else {
		snprintf(b->what, sizeof(b->what), "collecting");
		both_events(b);
	}
	both_state(b);
}

static void both_close(struct both *b, int end)
{
	snprintf(b->what, sizeof(b->what), "close of end %d", end);
	b->closed[end] = true;
	pollux_file_put(end ? pollux_pipe_write_end(b->p) : pollux_pipe_read_end(b->p));
	close(b->fd[end]);
	both_state(b);
	both_events(b);
}

static void in_step(uint32_t from, unsigned long steps)
{
	struct both b = {.p = pipe_new(0), .ep = ep_new()};
	uint32_t flags;

	seed = from;
	small_sizes = any(2);
	b.kep = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(pipe2(b.fd, O_NONBLOCK | O_CLOEXEC), 0);
	for (int end = 0; end < 2; end++) {
		struct epoll_event ev = {.data.u64 = (uint64_t)end};

		flags = any(3) ? EPOLLET : 0;
		ev.events = (end ? EPOLLOUT : EPOLLIN) | flags;
		ep_add(b.ep, end ? pollux_pipe_write_end(b.p) : pollux_pipe_read_end(b.p), end,
		       ev.events, ev.data.u64);
		assert_int_equal(epoll_ctl(b.kep, EPOLL_CTL_ADD, b.fd[end], &ev), 0);
	}
	for (b.step = 0; b.step < steps; b.step++)
		both_step(&b);
	both_close(&b, any(2));
	for (int i = 0; i < 10; i++)
		both_step(&b);
	both_close(&b, b.closed[0] ? 1 : 0);
	close(b.kep);
	ep_put(b.ep);
}

static void in_step_with_the_kernel(void **state)
{
	int rounds = getenv("POLLUX_TEST_LONG") ? 3000 : 150;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < rounds; i++) {
		uint32_t from = 0x9e3779b9u * (uint32_t)(i + 1);

		print_message("seed %#x\n", from);
		in_step(from, 300);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(PIPE_03_sixteen_slots_of_a_page),
		TEST(PIPE_04_PIPE_05_masks_and_closed_ends),
		TEST(PIPE_06_PIPE_11_room_is_by_slot),
		TEST(PIPE_14_packets),
		TEST(PIPE_15_capacity_can_be_changed),
		TEST(PIPE_21_a_closed_end_is_told_to_the_other),
		TEST(unknown_flags_are_refused),
		TEST(PIPE_24_one_write_wakes_one_reader),
		TEST(PIPE_12_PIPE_18_a_large_write_sleeps_until_all_is_written),
		TEST(PIPE_11_a_small_write_sleeps_until_a_slot_is_free),
		TEST(PIPE_10_readers_that_go_end_a_write),
		TEST(PIPE_12_a_handler_interrupts),
		TEST(in_step_with_the_kernel),
	};

	return RUN(tests);
}
