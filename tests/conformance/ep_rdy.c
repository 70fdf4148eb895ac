/* SPDX-License-Identifier: MIT */
/* EP-RDY: what makes an item ready, and what is reported of it. */
#include "waiting.h"

#include <arpa/inet.h>
#include <linux/aio_abi.h>
#include <netinet/in.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define EFD_MAX (UINT64_MAX - 1)
#define UNKNOWN_BITS 0x0ff00000u
#define ALL_POLL_BITS                                                                              \
	(EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDNORM | EPOLLRDBAND | EPOLLWRNORM | EPOLLWRBAND |   \
	 EPOLLMSG | EPOLLRDHUP)

/* Puts several writes into s and takes one away, so that it stays readable throughout. */
static struct subject sub_with_rest(enum kind kind)
{
	struct subject s = subject_new(kind);

	if (kind == KIND_EVENTFD) {
		close(s.fd);
		s.fd = (int)assert_ok(eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC));
	}
	for (int i = 0; i < 5; i++)
		subject_fill(&s);
	return s;
}

static void sub_take_one(const struct subject *s)
{
	char c;

	if (s->kind == KIND_EVENTFD)
		assert_int_equal(efd_take(s->fd), 1);
	else
		assert_int_equal(read(s->fd, &c, 1), 1);
}

static void EP_RDY_01_three_ways_onto_the_list(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new();

	/* Not ready at ADD: not listed. */
	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 1);
	assert_int_equal(ep_count(ep), 0);
	/* Its callback. */
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(ep_count(ep), 0);
	/* Ready at MOD. */
	ep_mod(ep, s.fd, EPOLLIN | EPOLLET, 2);
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_int_equal(ep_count(ep), 0);
	/* Not ready at MOD. */
	ep_mod(ep, s.fd, EPOLLPRI | EPOLLET, 2);
	assert_int_equal(ep_count(ep), 0);
	ep_del(ep, s.fd);
	/* Ready at ADD. */
	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 3);
	assert_true(ep_one(ep, EPOLLIN, 3));
	assert_int_equal(ep_count(ep), 0);
	subject_close(&s);
	close(ep);
}

static void EP_RDY_01_level_triggered_item_stays_after_delivery(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);

	for (int i = 0; i < w.nsub; i++) {
		subject_fill(&w.sub[i]);
		for (int e = 0; e < ENTRIES; e++) {
			struct epoll_event ev[4];

			assert_int_equal(wait_by(e, w.ep, ev, 4, -1, NULL), 1);
			assert_int_equal(ev[0].events, EPOLLIN);
			assert_int_equal(ev[0].data.u64, w.data[i]);
		}
		subject_drain(&w.sub[i]);
		assert_int_equal(ep_count(w.ep), 0);
	}
	wset_close(&w);
}

static void EP_RDY_02_out_item_ignores_a_write_to_an_eventfd(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = ep_new();

	(void)state;
	ep_add(ep, fd, EPOLLOUT | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	for (int i = 0; i < 3; i++) {
		efd_add(fd, 1);
		assert_int_equal(ep_count(ep), 0);
	}
	assert_int_equal(efd_take(fd), 3);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	close(fd);
	close(ep);
}

static void EP_RDY_02_in_item_ignores_a_read(void **state)
{
	struct subject s = sub_with_rest(KIND_OF(state));
	int ep = ep_new();

	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	sub_take_one(&s);
	sub_take_one(&s);
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_close(&s);
	close(ep);
}

static void EP_RDY_02_item_without_the_bits_does_not_wake_a_sleeper(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), other = efd_new(0, EFD_NONBLOCK), ep = ep_new();
	struct waiter t;

	(void)state;
	ep_add(ep, fd, EPOLLOUT | EPOLLET, 1);
	ep_add(ep, other, EPOLLIN, 2);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	waiter_sleep(&t, BY_WAIT, ep, -1, NULL);
	for (int i = 0; i < 20; i++)
		efd_add(fd, 1);
	efd_add(other, 1);
	waiter_collected(&t, 2);
	close(fd);
	close(other);
	close(ep);
}

/* Last close and a change of size pass no key, and no interest keeps that out. */
static void EP_RDY_02_no_key_passes_every_filter(void **state)
{
	int p[2], s[2], ep = ep_new();

	(void)state;
	assert_ok(pipe2(p, O_NONBLOCK));
	ep_add(ep, p[1], EPOLLOUT | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	assert_ok(fcntl(p[1], F_SETPIPE_SZ, 32768));
	assert_true(ep_one(ep, EPOLLOUT, 1));
	assert_int_equal(ep_count(ep), 0);
	close(p[0]);
	assert_true(ep_one(ep, EPOLLOUT | EPOLLERR, 1));
	close(p[1]);

	assert_ok(pipe2(p, O_NONBLOCK));
	ep_add(ep, p[0], EPOLLPRI | EPOLLET, 2);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(ep_count(ep), 0);
	close(p[1]);
	assert_true(ep_one(ep, EPOLLHUP, 2));
	close(p[0]);

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	ep_add(ep, s[0], EPOLLRDHUP | EPOLLET, 3);
	assert_int_equal(write(s[1], "x", 1), 1);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(shutdown(s[1], SHUT_WR));
	assert_true(ep_one(ep, EPOLLRDHUP, 3));
	close(s[0]);
	close(s[1]);
	close(ep);
}

static void EP_RDY_03_report_is_the_state_at_collection(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = ep_new();

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	/* Woken for IN, but only OUT holds when it is looked at. */
	efd_add(fd, 0);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	efd_add(fd, 7);
	efd_take(fd);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	/* Woken for IN while both held; then the counter became full. */
	efd_add(fd, 7);
	efd_add(fd, EFD_MAX - 7);
	assert_true(ep_one(ep, EPOLLIN, 1));
	/* Woken for OUT, then filled again. */
	efd_take(fd);
	efd_add(fd, EFD_MAX);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(ep_count(ep), 0);
	close(fd);
	close(ep);
}

/* A callback that passes with nothing true is no event, for a sleeper neither. */
static void EP_RDY_03_wake_in_vain_is_not_reported(void **state)
{
	struct wset w = wset_open(WSET_OF(state), EPOLLET);
	struct waiter t;

	for (int i = 0; i < w.nsub; i++) {
		assert_true(subject_poke_in_vain(&w.sub[i]));
		assert_int_equal(ep_count(w.ep), 0);
	}
	waiter_sleep(&t, BY_WAIT, w.ep, -1, NULL);
	for (int n = 0; n < 50; n++)
		for (int i = 0; i < w.nsub; i++)
			assert_true(subject_poke_in_vain(&w.sub[i]));
	assert_true(thread_asleep(&t.t));
	subject_fill(&w.sub[0]);
	waiter_collected(&t, w.data[0]);
	wset_close(&w);
}

static void EP_RDY_04_disabled_item_ignores_everything(void **state)
{
	static const uint32_t flags[] = {EPOLLONESHOT, EPOLLONESHOT | EPOLLET};

	for (int f = 0; f < 2; f++) {
		struct subject s = subject_new(KIND_OF(state));
		int ep = ep_new();
		uint32_t more = 0;

		ep_add(ep, s.fd, EPOLLIN | flags[f], 1);
		subject_fill(&s);
		assert_true(ep_one(ep, EPOLLIN, 1));
		subject_fill(&s);
		assert_int_equal(ep_count(ep), 0);
		subject_drain(&s);
		subject_fill(&s);
		assert_int_equal(ep_count(ep), 0);
		if (s.kind != KIND_EVENTFD) {
			close(s.peer);
			s.peer = -1;
			more = EPOLLHUP;
		}
		assert_int_equal(ep_count(ep), 0);
		ep_mod(ep, s.fd, EPOLLIN | flags[f], 2);
		assert_true(ep_one(ep, EPOLLIN | more, 2));
		assert_int_equal(ep_count(ep), 0);
		subject_close(&s);
		close(ep);
	}
}

static void EP_RDY_04_disabled_item_does_not_wake_a_sleeper(void **state)
{
	struct subject s = subject_new(KIND_OF(state)), other = subject_new(KIND_EVENTFD);
	int ep = ep_new();
	struct waiter t;

	ep_add(ep, s.fd, EPOLLIN | EPOLLONESHOT, 1);
	ep_add(ep, other.fd, EPOLLIN, 2);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	waiter_sleep(&t, BY_WAIT, ep, -1, NULL);
	for (int i = 0; i < 20; i++)
		subject_fill(&s);
	subject_fill(&other);
	waiter_collected(&t, 2);
	subject_close(&s);
	subject_close(&other);
	close(ep);
}

static void EP_RDY_05_further_callback_does_not_move_the_item(void **state)
{
	struct subject s[3];
	struct epoll_event ev[4];
	int ep = ep_new();

	for (int i = 0; i < 3; i++) {
		s[i] = subject_new(KIND_OF(state));
		ep_add(ep, s[i].fd, EPOLLIN | EPOLLET, (uint64_t)i);
	}
	subject_fill(&s[1]);
	subject_fill(&s[2]);
	subject_fill(&s[0]);
	subject_fill(&s[1]);
	subject_fill(&s[2]);
	assert_int_equal(ep_poll(ep, ev, 4), 3);
	assert_int_equal(ev[0].data.u64, 1);
	assert_int_equal(ev[1].data.u64, 2);
	assert_int_equal(ev[2].data.u64, 0);
	for (int i = 0; i < 3; i++)
		subject_close(&s[i]);
	close(ep);
}

/* An item already queued in the inner epoll still tells those who watch that epoll. */
static void EP_RDY_05_further_callback_wakes_the_pollers(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer = ep_new();
	struct waiter t;

	ep_add(inner, s.fd, EPOLLIN | EPOLLET, 1);
	ep_add(outer, inner, EPOLLIN | EPOLLET, 2);
	subject_fill(&s);
	assert_true(ep_one(outer, EPOLLIN, 2));
	assert_int_equal(ep_count(outer), 0);
	subject_fill(&s);
	assert_true(ep_one(outer, EPOLLIN, 2));
	assert_int_equal(ep_count(outer), 0);
	waiter_sleep(&t, BY_WAIT, outer, -1, NULL);
	subject_fill(&s);
	waiter_collected(&t, 2);
	assert_true(ep_one(inner, EPOLLIN, 1));
	assert_int_equal(ep_count(inner), 0);
	subject_close(&s);
	close(inner);
	close(outer);
}

static void EP_RDY_06_every_write_is_an_edge(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new();
	struct waiter t;

	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 1);
	for (int i = 0; i < 5; i++) {
		subject_fill(&s);
		assert_true(ep_one(ep, EPOLLIN, 1));
		assert_int_equal(ep_count(ep), 0);
	}
	for (int i = 0; i < 5; i++) {
		waiter_sleep(&t, BY_WAIT, ep, -1, NULL);
		subject_fill(&s);
		waiter_collected(&t, 1);
	}
	subject_close(&s);
	close(ep);
}

static void EP_RDY_06_writing_zero_is_an_edge(void **state)
{
	int fd = efd_new(3, EFD_NONBLOCK), ep = ep_new();

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	for (int i = 0; i < 3; i++) {
		efd_add(fd, 0);
		assert_true(ep_one(ep, EPOLLIN, 1));
		assert_int_equal(ep_count(ep), 0);
	}
	close(fd);
	close(ep);
}

/* Each read of an eventfd is an edge for OUT, as each write is one for IN. */
static void EP_RDY_06_every_read_of_an_eventfd_is_an_edge_for_out(void **state)
{
	int fd = efd_new(5, EFD_SEMAPHORE | EFD_NONBLOCK), ep = ep_new();
	uint64_t v;

	(void)state;
	ep_add(ep, fd, EPOLLOUT | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	for (int i = 0; i < 5; i++) {
		efd_take(fd);
		assert_true(ep_one(ep, EPOLLOUT, 1));
		assert_int_equal(ep_count(ep), 0);
	}
	/* One that fails is none. */
	assert_errno(read(fd, &v, sizeof(v)), EAGAIN);
	assert_int_equal(ep_count(ep), 0);
	close(fd);
	close(ep);
}

static void EP_RDY_07_edges_before_a_collection_are_one_event(void **state)
{
	struct wset w = wset_open(WSET_OF(state), EPOLLET);
	struct epoll_event ev[4];

	for (int i = 0; i < w.nsub; i++) {
		for (int n = 0; n < 5; n++)
			subject_fill(&w.sub[i]);
		assert_int_equal(ep_poll(w.ep, ev, 4), 1);
		assert_int_equal(ev[0].data.u64, w.data[i]);
		assert_int_equal(ep_count(w.ep), 0);
	}
	wset_close(&w);
}

/* A writer and a collector at full speed: never more events than edges, none lost at the end. */
struct stream {
	struct test_thread t;
	struct subject s;
	int writes;
	int done;
};

static void *stream_main(void *arg)
{
	struct stream *st = arg;
	int ok = 0;

	while (ok < st->writes) {
		/* A socket that is full refuses and makes no edge. */
		if (subject_poke(&st->s))
			ok++;
		else
			sched_yield();
	}
	__atomic_store_n(&st->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void EP_RDY_08_no_more_events_than_edges(void **state)
{
	struct stream st = {.s = subject_new(KIND_OF(state)), .writes = 20000};
	int ep = ep_new(), events = 0;
	bool done;

	ep_add(ep, st.s.fd, EPOLLIN | EPOLLET, 1);
	thread_start(&st.t, stream_main, &st);
	do {
		done = __atomic_load_n(&st.done, __ATOMIC_ACQUIRE);
		if (ep_count(ep) == 1) {
			events++;
			subject_drain(&st.s);
		}
	} while (!done);
	assert_true(thread_join(&st.t, SOON_MS));
	events += ep_count(ep);
	assert_uint_in_range(events, 1, st.writes);
	assert_int_equal(ep_count(ep), 0);
	subject_close(&st.s);
	close(ep);
}

static void EP_RDY_09_stale_edge_is_dropped(void **state)
{
	static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

	for (int f = 0; f < 4; f++) {
		struct wset w = wset_open(WSET_OF(state), flags[f]);

		for (int i = 0; i < w.nsub; i++) {
			subject_fill(&w.sub[i]);
			subject_drain(&w.sub[i]);
		}
		assert_int_equal(ep_count(w.ep), 0);
		assert_int_equal(ep_count(w.ep), 0);
		subject_fill(&w.sub[w.nsub - 1]);
		assert_true(ep_one(w.ep, EPOLLIN, w.data[w.nsub - 1]));
		wset_close(&w);
	}
}

/* Stale items in front of a ready one do not hide it. */
static void EP_RDY_09_stale_items_beside_ready_ones(void **state)
{
	struct subject s[6];
	struct epoll_event ev;
	int ep = ep_new();

	(void)state;
	for (int i = 0; i < 6; i++) {
		s[i] = subject_new(i % 2 == 0 ? KIND_EVENTFD : KIND_PIPE);
		ep_add(ep, s[i].fd, EPOLLIN | EPOLLET, (uint64_t)i);
	}
	for (int keep = 0; keep < 6; keep++) {
		for (int i = 0; i < 6; i++)
			subject_fill(&s[i]);
		for (int i = 0; i < 6; i++)
			if (i != keep)
				subject_drain(&s[i]);
		assert_int_equal(ep_poll(ep, &ev, 1), 1);
		assert_int_equal(ev.data.u64, keep);
		assert_int_equal(ep_count(ep), 0);
		subject_drain(&s[keep]);
	}
	for (int i = 0; i < 6; i++)
		subject_close(&s[i]);
	close(ep);
}

static void EP_RDY_10_edge_reports_all_that_is_true(void **state)
{
	int fd = efd_new(2, EFD_SEMAPHORE | EFD_NONBLOCK), s[2], ep = ep_new();

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 1));
	/* Key OUT. */
	efd_take(fd);
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 1));
	efd_take(fd);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	/* Key IN. */
	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 1));
	close(fd);

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	ep_add(ep, s[0], EPOLLIN | EPOLLOUT | EPOLLET, 2);
	assert_true(ep_one(ep, EPOLLOUT, 2));
	assert_int_equal(write(s[1], "x", 1), 1);
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 2));
	close(s[0]);
	close(s[1]);
	close(ep);
}

static void EP_RDY_11_partial_read_is_no_edge(void **state)
{
	struct subject s = sub_with_rest(KIND_OF(state));
	int ep = ep_new();

	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	for (int i = 0; i < 4; i++) {
		struct epoll_event ev;

		sub_take_one(&s);
		assert_int_equal(ep_poll(ep, &ev, 1), 0);
		assert_int_equal(epoll_wait(ep, &ev, 1, 1), 0);
	}
	/* LT would have reported all the time. */
	ep_mod(ep, s.fd, EPOLLIN, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_close(&s);
	close(ep);
}

static void EP_RDY_12_err_and_hup_need_not_be_asked_for(void **state)
{
	static const uint32_t asked[] = {0, EPOLLET, EPOLLONESHOT, EPOLLPRI | EPOLLET};

	(void)state;
	for (int i = 0; i < 4; i++) {
		int p[2], s[2], mix = efd_new(0, EFD_NONBLOCK), ep = ep_new();
		struct waiter t;

		ep_add(ep, mix, asked[i], 9);
		assert_ok(pipe2(p, O_NONBLOCK));
		ep_add(ep, p[0], asked[i], 1);
		assert_int_equal(ep_count(ep), 0);
		waiter_sleep(&t, BY_WAIT, ep, -1, NULL);
		close(p[1]);
		waiter_collected(&t, 1);
		assert_int_equal(t.ev[0].events, EPOLLHUP);
		close(p[0]);

		assert_ok(pipe2(p, O_NONBLOCK));
		ep_add(ep, p[1], asked[i], 2);
		close(p[0]);
		assert_true(ep_one(ep, EPOLLERR, 2));
		close(p[1]);

		assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
		ep_add(ep, s[0], asked[i], 3);
		assert_int_equal(ep_count(ep), 0);
		close(s[1]);
		assert_true(ep_one(ep, EPOLLHUP, 3));
		close(s[0]);
		close(mix);
		close(ep);
	}
}

/* Signals fd once from the kernel's side, by the completion of a file read. */
static bool kernel_signal(int fd)
{
	aio_context_t ctx = 0;
	struct io_event done;
	char c;
	int file = memfd_create("file", MFD_CLOEXEC);
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD,
			  .aio_fildes = (uint32_t)file,
			  .aio_buf = (uintptr_t)&c,
			  .aio_nbytes = 1,
			  .aio_flags = IOCB_FLAG_RESFD,
			  .aio_resfd = (uint32_t)fd};
	struct iocb *list[] = {&cb};
	bool ok = false;

	if (aio_setup_in_turn(1, &ctx) == 0) {
		ok = syscall(SYS_io_submit, ctx, 1, list) == 1 &&
		     syscall(SYS_io_getevents, ctx, 1, 1, &done, NULL) == 1;
		syscall(SYS_io_destroy, ctx);
	}
	close(file);
	return ok;
}

static void EP_RDY_13_err_needs_a_callback_that_passes(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), none = ep_new(), in = ep_new();

	(void)state;
	efd_add(fd, EFD_MAX);
	ep_add(none, fd, EPOLLET, 1);
	ep_add(in, fd, EPOLLIN | EPOLLET, 2);
	assert_true(ep_one(in, EPOLLIN, 2));
	assert_int_equal(ep_count(none), 0);
	if (!kernel_signal(fd)) {
		print_message("skipped: no AIO here to overflow an eventfd with\n");
		close(fd);
		close(none);
		close(in);
		skip();
	}
	/* The counter is now 2^64-1, the error state; the wake said IN. */
	assert_true(ep_one(in, EPOLLIN | EPOLLERR, 2));
	assert_int_equal(ep_count(none), 0);
	ep_mod(none, fd, 0, 1);
	assert_true(ep_one(none, EPOLLERR, 1));
	assert_int_equal(efd_take(fd), UINT64_MAX);
	assert_int_equal(ep_count(none), 0);
	close(fd);
	close(none);
	close(in);
}

static void EP_RDY_14_oneshot_reports_once_until_mod(void **state)
{
	static const uint32_t flags[] = {EPOLLONESHOT, EPOLLONESHOT | EPOLLET};

	for (int f = 0; f < 2; f++) {
		struct subject s = subject_new(KIND_OF(state));
		struct waiter t;
		int ep = ep_new();

		ep_add(ep, s.fd, EPOLLIN | flags[f], 1);
		for (int round = 0; round < 3; round++) {
			waiter_sleep(&t, BY_WAIT, ep, -1, NULL);
			subject_fill(&s);
			waiter_collected(&t, 1);
			assert_int_equal(t.ev[0].events, EPOLLIN);
			assert_int_equal(ep_count(ep), 0);
			subject_fill(&s);
			assert_int_equal(ep_count(ep), 0);
			/* Re-armed while ready: queued at once. */
			ep_mod(ep, s.fd, EPOLLIN | flags[f], 1);
			assert_true(ep_one(ep, EPOLLIN, 1));
			assert_int_equal(ep_count(ep), 0);
			subject_drain(&s);
			ep_mod(ep, s.fd, EPOLLIN | flags[f], 1);
			assert_int_equal(ep_count(ep), 0);
		}
		subject_close(&s);
		close(ep);
	}
}

static void EP_RDY_14_hangup_is_not_reported_by_a_spent_item(void **state)
{
	enum kind kind = KIND_OF(state);
	struct subject s = subject_new(kind == KIND_EVENTFD ? KIND_PIPE : kind);
	int ep = ep_new(), outer = ep_new();

	ep_add(outer, ep, EPOLLIN, 5);
	ep_add(ep, s.fd, EPOLLIN | EPOLLONESHOT, 1);
	subject_fill(&s);
	assert_true(ep_one(outer, EPOLLIN, 5));
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(s.peer);
	s.peer = -1;
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(ep_count(outer), 0);
	ep_mod(ep, s.fd, EPOLLONESHOT, 1);
	assert_true(ep_one(outer, EPOLLIN, 5));
	assert_true(ep_one(ep, EPOLLHUP, 1));
	assert_int_equal(ep_count(ep), 0);
	subject_close(&s);
	close(ep);
	close(outer);
}

static void EP_RDY_15_oneshot_is_spent_only_by_delivery(void **state)
{
	static const uint32_t flags[] = {EPOLLONESHOT, EPOLLONESHOT | EPOLLET};

	for (int f = 0; f < 2; f++) {
		struct wset w = wset_open(WSET_OF(state), flags[f]);
		struct waiter t;

		for (int i = 0; i < w.nsub; i++) {
			for (int n = 0; n < 3; n++) {
				subject_fill(&w.sub[i]);
				subject_drain(&w.sub[i]);
				assert_int_equal(ep_count(w.ep), 0);
			}
		}
		waiter_sleep(&t, BY_WAIT, w.ep, -1, NULL);
		for (int n = 0; n < 20; n++)
			for (int i = 0; i < w.nsub; i++)
				assert_true(subject_poke_in_vain(&w.sub[i]));
		subject_fill(&w.sub[0]);
		waiter_collected(&t, w.data[0]);
		assert_int_equal(ep_count(w.ep), 0);
		wset_close(&w);
	}
}

static void EP_RDY_16_flag_and_unknown_bits_are_not_reported(void **state)
{
	static const uint32_t flags[] = {EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | UNKNOWN_BITS,
					 EPOLLONESHOT | UNKNOWN_BITS, EPOLLET | EPOLLWAKEUP,
					 EPOLLET | EPOLLEXCLUSIVE | EPOLLWAKEUP};

	for (int f = 0; f < 4; f++) {
		struct subject s = subject_new(KIND_OF(state));
		int ep = ep_new();

		ep_add(ep, s.fd, EPOLLIN | flags[f], 1);
		subject_fill(&s);
		assert_true(ep_one(ep, EPOLLIN, 1));
		subject_close(&s);
		close(ep);
	}
}

/* For every single bit asked for, nothing else comes back. */
static void EP_RDY_16_only_requested_bits_are_reported(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct epoll_event ev;
	uint32_t full;
	int ep = ep_new();

	subject_fill(&s);
	ep_add(ep, s.fd, ALL_POLL_BITS | UNKNOWN_BITS, 1);
	assert_int_equal(ep_poll(ep, &ev, 1), 1);
	full = ev.events;
	switch (s.kind) {
	case KIND_EVENTFD:
		assert_int_equal(full, EPOLLIN | EPOLLOUT);
		break;
	case KIND_PIPE:
		assert_int_equal(full, EPOLLIN | EPOLLRDNORM);
		break;
	default:
		assert_int_equal(full,
				 EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	}
	for (int bit = 0; bit < 28; bit++) {
		uint32_t one = 1U << bit;

		ep_mod(ep, s.fd, one, 1);
		if ((full & one) != 0)
			assert_true(ep_one(ep, one, 1));
		else
			assert_int_equal(ep_count(ep), 0);
	}
	subject_close(&s);
	close(ep);
}

static void EP_RDY_16_rdhup_only_if_requested(void **state)
{
	int s[2], ep = ep_new();

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	ep_add(ep, s[0], EPOLLIN, 1);
	assert_ok(shutdown(s[1], SHUT_WR));
	assert_true(ep_one(ep, EPOLLIN, 1));
	ep_mod(ep, s[0], EPOLLIN | EPOLLRDHUP, 1);
	assert_true(ep_one(ep, EPOLLIN | EPOLLRDHUP, 1));
	ep_mod(ep, s[0], EPOLLRDHUP, 1);
	assert_true(ep_one(ep, EPOLLRDHUP, 1));
	close(s[0]);
	close(s[1]);
	close(ep);
}

static void EP_RDY_16_pri_only_if_requested(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	int ep = ep_new();
	struct epoll_event ev;

	(void)state;
	if (l == -1 || c == -1 || bind(l, (struct sockaddr *)&a, sizeof(a)) == -1 ||
	    listen(l, 1) == -1 || getsockname(l, (struct sockaddr *)&a, &len) == -1 ||
	    connect(c, (struct sockaddr *)&a, sizeof(a)) == -1) {
		print_message("skipped: no TCP on the loopback address here\n");
		close(l);
		close(c);
		close(ep);
		skip();
	}
	s = (int)assert_ok(accept(l, NULL, NULL));
	ep_add(ep, s, EPOLLPRI, 1);
	assert_int_equal(send(c, "!", 1, MSG_OOB), 1);
	assert_int_equal(epoll_wait(ep, &ev, 1, SOON_MS), 1);
	assert_int_equal(ev.events, EPOLLPRI);
	ep_mod(ep, s, EPOLLOUT, 1);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	ep_mod(ep, s, EPOLLIN, 1);
	assert_int_equal(ep_count(ep), 0);
	close(s);
	close(c);
	close(l);
	close(ep);
}

/* A thread makes one edge on each of many files while the main thread collects them. */
#define SPRAY 24
#define SPRAY_ROUNDS 200

struct spray {
	struct test_thread t;
	struct subject s[SPRAY];
	sem_t go;
};

static void *spray_main(void *arg)
{
	struct spray *sp = arg;
	int ok = 0;

	for (int r = 0; r < SPRAY_ROUNDS; r++) {
		while (sem_wait(&sp->go) == -1)
			;
		for (int i = 0; i < SPRAY; i++)
			ok += subject_poke(&sp->s[(i + r) % SPRAY]);
	}
	return (void *)(intptr_t)ok;
}

static void spray_run(enum wset_kind kind, uint32_t flags, bool sleeping, int max)
{
	struct spray sp;
	int ep = ep_new();

	sem_init(&sp.go, 0, 0);
	for (int i = 0; i < SPRAY; i++) {
		enum kind k = kind == WSET_EVENTFD || (kind == WSET_MIXED && i % 2 == 0)
				      ? KIND_EVENTFD
				      : KIND_PIPE;

		sp.s[i] = subject_new(k);
		ep_add(ep, sp.s[i].fd, EPOLLIN | flags, (uint64_t)i);
	}
	thread_start(&sp.t, spray_main, &sp);
	for (int r = 0; r < SPRAY_ROUNDS; r++) {
		bool seen[SPRAY] = {false};
		int left = SPRAY;
		int64_t end = now_ms() + SOON_MS;

		sem_post(&sp.go);
		while (left > 0 && now_ms() < end) {
			struct epoll_event ev[SPRAY];
			int n = epoll_wait(ep, ev, max, sleeping ? SOON_MS : 0);

			for (int i = 0; i < n; i++) {
				uint64_t d = ev[i].data.u64;

				assert_true(d < SPRAY);
				/* Each file has one edge a round: each is reported once. */
				assert_false(seen[d]);
				seen[d] = true;
				left--;
				subject_drain(&sp.s[d]);
				if ((flags & EPOLLONESHOT) != 0)
					ep_mod(ep, sp.s[d].fd, EPOLLIN | flags, d);
			}
		}
		assert_int_equal(left, 0);
		assert_int_equal(ep_count(ep), 0);
	}
	assert_true(thread_join(&sp.t, SOON_MS));
	assert_int_equal((intptr_t)sp.t.ret, SPRAY * SPRAY_ROUNDS);
	for (int i = 0; i < SPRAY; i++)
		subject_close(&sp.s[i]);
	sem_destroy(&sp.go);
	close(ep);
}

static void EP_RDY_17_edges_during_a_collection_are_not_lost(void **state)
{
	spray_run(WSET_OF(state), EPOLLET, true, SPRAY);
	spray_run(WSET_OF(state), EPOLLET, true, 3);
	spray_run(WSET_OF(state), EPOLLET, false, SPRAY);
	spray_run(WSET_OF(state), EPOLLET, false, 1);
}

static void EP_RDY_17_oneshot_and_level_items_are_not_lost(void **state)
{
	spray_run(WSET_OF(state), EPOLLONESHOT, true, SPRAY);
	spray_run(WSET_OF(state), EPOLLONESHOT, false, 2);
	spray_run(WSET_OF(state), 0, true, 5);
}

static void EP_RDY_18_visible_when_the_write_has_returned(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < w.nsub; i++) {
			subject_fill(&w.sub[i]);
			assert_true(ep_one(w.ep, EPOLLIN, w.data[i]));
			subject_drain(&w.sub[i]);
			assert_int_equal(ep_count(w.ep), 0);
		}
	}
	wset_close(&w);
}

/* Every way to write 8 bytes into an eventfd ends in the same event. */
static void EP_RDY_18_visible_by_every_way_of_writing(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = ep_new();
	uint64_t one = 1;
	struct iovec v = {&one, sizeof(one)};

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLET, 1);
	assert_int_equal(writev(fd, &v, 1), 8);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(eventfd_write(fd, 1), 0);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(syscall(SYS_write, fd, &one, sizeof(one)), 8);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(syscall(SYS_writev, fd, &v, 1), 8);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(pwritev2(fd, &v, 1, -1, 0), 8);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(dprintf(fd, "%s", "\x01\x01\x01\x01\x01\x01\x01\x01"), 8);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(efd_take(fd), 5 + 0x0101010101010101ULL);
	close(fd);
	close(ep);
}

static void EP_RDY_18_visible_after_a_write_by_stdio(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), d = dup_of(fd), ep = ep_new();
	uint64_t one = 1;
	FILE *f;

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLET, 1);
	f = fdopen(d, "w");
	assert_non_null(f);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fwrite(&one, sizeof(one), 1, f), 1);
		assert_int_equal(ep_count(ep), 0);
		assert_int_equal(fflush(f), 0);
		assert_true(ep_one(ep, EPOLLIN, 1));
	}
	assert_int_equal(efd_take(fd), 3);
	/* fclose writes the rest, then drops the duplicate; the item stays. */
	assert_int_equal(fwrite(&one, sizeof(one), 1, f), 1);
	assert_int_equal(fclose(f), 0);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(efd_take(fd), 1);
	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(fd);
	close(ep);
}

static int handler_fd;

static void write_in_handler(int sig)
{
	uint64_t one = 1;
	ssize_t r = write(handler_fd, &one, sizeof(one));

	(void)sig;
	(void)r;
}

static void EP_RDY_18_visible_after_a_write_in_a_signal_handler(void **state)
{
	struct sigaction sa = {.sa_handler = write_in_handler}, old;
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new();

	handler_fd = s.kind == KIND_EVENTFD ? s.fd : s.peer;
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 1);
	for (int i = 0; i < 20; i++) {
		raise(SIGUSR1);
		assert_true(ep_one(ep, EPOLLIN, 1));
		assert_int_equal(ep_count(ep), 0);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	subject_close(&s);
	close(ep);
}

/* Written in one thread, seen by a wait without timeout in another. */
struct relay {
	struct test_thread t;
	const struct subject *s;
	sem_t ask, answer;
	bool stop;
};

static void *relay_main(void *arg)
{
	struct relay *r = arg;

	for (;;) {
		while (sem_wait(&r->ask) == -1)
			;
		if (r->stop)
			return NULL;
		subject_poke(r->s);
		sem_post(&r->answer);
	}
}

static void EP_RDY_18_visible_in_another_thread(void **state)
{
	struct wset w = wset_open(WSET_OF(state), EPOLLET);

	for (int i = 0; i < w.nsub; i++) {
		struct relay r = {.s = &w.sub[i]};

		sem_init(&r.ask, 0, 0);
		sem_init(&r.answer, 0, 0);
		thread_start(&r.t, relay_main, &r);
		for (int round = 0; round < 200; round++) {
			sem_post(&r.ask);
			while (sem_wait(&r.answer) == -1)
				;
			assert_true(ep_one(w.ep, EPOLLIN, w.data[i]));
		}
		r.stop = true;
		sem_post(&r.ask);
		assert_true(thread_join(&r.t, SOON_MS));
		sem_destroy(&r.ask);
		sem_destroy(&r.answer);
		subject_drain(&w.sub[i]);
		if (w.inner >= 0)
			ep_count(w.inner);
	}
	wset_close(&w);
}

static void EP_RDY_19_newest_registration_is_called_first(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct epoll_event ev[4];
	int ep = ep_new(), d[3];

	for (int i = 0; i < 3; i++) {
		d[i] = dup_of(s.fd);
		ep_add(ep, d[i], EPOLLIN | EPOLLET, (uint64_t)i);
	}
	subject_fill(&s);
	assert_int_equal(ep_poll(ep, ev, 4), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ev[i].data.u64, 2 - i);
	/* MOD does not make an item newer, DEL and ADD does. */
	subject_drain(&s);
	ep_mod(ep, d[0], EPOLLIN | EPOLLET, 0);
	ep_del(ep, d[1]);
	ep_add(ep, d[1], EPOLLIN | EPOLLET, 1);
	subject_fill(&s);
	assert_int_equal(ep_poll(ep, ev, 4), 3);
	assert_int_equal(ev[0].data.u64, 1);
	assert_int_equal(ev[1].data.u64, 2);
	assert_int_equal(ev[2].data.u64, 0);
	for (int i = 0; i < 3; i++)
		close(d[i]);
	subject_close(&s);
	close(ep);
}

/* Over several epolls the order shows in an outer epoll that watches them all. */
static void EP_RDY_19_newest_epoll_is_called_first(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct epoll_event ev[4];
	int e[3], outer = ep_new();

	for (int i = 0; i < 3; i++) {
		e[i] = ep_new();
		ep_add(outer, e[i], EPOLLIN, (uint64_t)i);
	}
	ep_add(e[1], s.fd, EPOLLIN, 1);
	ep_add(e[0], s.fd, EPOLLIN, 1);
	ep_add(e[2], s.fd, EPOLLIN, 1);
	subject_fill(&s);
	assert_int_equal(ep_poll(outer, ev, 4), 3);
	assert_int_equal(ev[0].data.u64, 2);
	assert_int_equal(ev[1].data.u64, 0);
	assert_int_equal(ev[2].data.u64, 1);
	for (int i = 0; i < 3; i++)
		close(e[i]);
	subject_close(&s);
	close(outer);
}

int main(void)
{
	static const struct CMUnitTest ep_rdy[] = {
		EACH_KIND(EP_RDY_01_three_ways_onto_the_list),
		EACH_WSET(EP_RDY_01_level_triggered_item_stays_after_delivery),
		cmocka_unit_test(EP_RDY_02_out_item_ignores_a_write_to_an_eventfd),
		EACH_KIND(EP_RDY_02_in_item_ignores_a_read),
		cmocka_unit_test(EP_RDY_02_item_without_the_bits_does_not_wake_a_sleeper),
		cmocka_unit_test(EP_RDY_02_no_key_passes_every_filter),
		cmocka_unit_test(EP_RDY_03_report_is_the_state_at_collection),
		EACH_WSET(EP_RDY_03_wake_in_vain_is_not_reported),
		EACH_KIND(EP_RDY_04_disabled_item_ignores_everything),
		EACH_KIND(EP_RDY_04_disabled_item_does_not_wake_a_sleeper),
		EACH_KIND(EP_RDY_05_further_callback_does_not_move_the_item),
		EACH_KIND(EP_RDY_05_further_callback_wakes_the_pollers),
		EACH_KIND(EP_RDY_06_every_write_is_an_edge),
		cmocka_unit_test(EP_RDY_06_writing_zero_is_an_edge),
		cmocka_unit_test(EP_RDY_06_every_read_of_an_eventfd_is_an_edge_for_out),
		EACH_WSET(EP_RDY_07_edges_before_a_collection_are_one_event),
		EACH_KIND(EP_RDY_08_no_more_events_than_edges),
		EACH_WSET(EP_RDY_09_stale_edge_is_dropped),
		cmocka_unit_test(EP_RDY_09_stale_items_beside_ready_ones),
		cmocka_unit_test(EP_RDY_10_edge_reports_all_that_is_true),
		EACH_KIND(EP_RDY_11_partial_read_is_no_edge),
		cmocka_unit_test(EP_RDY_12_err_and_hup_need_not_be_asked_for),
		cmocka_unit_test(EP_RDY_13_err_needs_a_callback_that_passes),
		EACH_KIND(EP_RDY_14_oneshot_reports_once_until_mod),
		EACH_KIND(EP_RDY_14_hangup_is_not_reported_by_a_spent_item),
		EACH_WSET(EP_RDY_15_oneshot_is_spent_only_by_delivery),
		EACH_KIND(EP_RDY_16_flag_and_unknown_bits_are_not_reported),
		EACH_KIND(EP_RDY_16_only_requested_bits_are_reported),
		cmocka_unit_test(EP_RDY_16_rdhup_only_if_requested),
		cmocka_unit_test(EP_RDY_16_pri_only_if_requested),
		EACH_FLAT_WSET(EP_RDY_17_edges_during_a_collection_are_not_lost),
		EACH_FLAT_WSET(EP_RDY_17_oneshot_and_level_items_are_not_lost),
		EACH_WSET(EP_RDY_18_visible_when_the_write_has_returned),
		cmocka_unit_test(EP_RDY_18_visible_by_every_way_of_writing),
		cmocka_unit_test(EP_RDY_18_visible_after_a_write_by_stdio),
		EACH_KIND(EP_RDY_18_visible_after_a_write_in_a_signal_handler),
		EACH_WSET(EP_RDY_18_visible_in_another_thread),
		EACH_KIND(EP_RDY_19_newest_registration_is_called_first),
		EACH_KIND(EP_RDY_19_newest_epoll_is_called_first),
	};

	return run_group(ep_rdy);
}
