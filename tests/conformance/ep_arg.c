/* SPDX-License-Identifier: MIT */
/* EP-ARG: what epoll_wait, epoll_pwait and epoll_pwait2 make of their arguments. */
#include "waiting.h"

#include <sys/mman.h>

#define MAX_EVENTS ((int)(INT_MAX / sizeof(struct epoll_event)))

/* An address no user program can have. */
#define KERNEL_ADDRESS ((void *)(uintptr_t)0xffff800000000000ULL)

/* In .bss so that the longest array allowed still ends inside the address space. */
static struct epoll_event buffer[16];

/* A writable page, a page without access and a page that can only be read. */
static unsigned char *page, *hole, *readonly;

static int map_pages(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *p =
		mmap(NULL, 3 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -1;
	page = p;
	hole = p + size;
	readonly = p + 2 * size;
	if (mprotect(hole, size, PROT_NONE) != 0)
		return -1;
	return mprotect(readonly, size, PROT_READ);
}

/* An array in which n events fit before the memory ends, and extra bytes of the next. */
static struct epoll_event *room_for(size_t n, size_t extra)
{
	return (struct epoll_event *)(void *)(hole - n * sizeof(struct epoll_event) - extra);
}

static int wait_now(enum entry e, int ep, void *ev, int max)
{
	return wait_by(e, ep, ev, max, 0, NULL);
}

/* One of two errors, where kernels differ in the order of their checks. */
static void either(int r, int err, int a, int b)
{
	assert_int_equal(r, -1);
	if (err != b)
		assert_int_equal(err, a);
}

static int closed_fd(void)
{
	int fd = efd_new(0, EFD_NONBLOCK);

	close(fd);
	return fd;
}

static void EP_ARG_01_epfd_that_is_not_open(void **state)
{
	int path = (int)assert_ok(open("/", O_PATH | O_CLOEXEC));

	(void)state;
	for (int e = 0; e < ENTRIES; e++) {
		assert_errno(wait_now(e, closed_fd(), buffer, 1), EBADF);
		assert_errno(wait_now(e, -1, buffer, 1), EBADF);
		assert_errno(wait_now(e, INT_MAX, buffer, 1), EBADF);
		assert_errno(wait_now(e, INT_MIN, buffer, 1), EBADF);
		assert_errno(wait_now(e, path, buffer, 1), EBADF);
	}
	close(path);
}

static void EP_ARG_01_epfd_that_is_not_an_epoll(void **state)
{
	int zero = (int)assert_ok(open("/dev/zero", O_RDONLY | O_CLOEXEC));

	(void)state;
	for (int e = 0; e < ENTRIES; e++) {
		for (int k = 0; k < KIND_SOCKET + 1; k++) {
			struct subject s = subject_new(k);

			subject_fill(&s);
			assert_errno(wait_now(e, s.fd, buffer, 1), EINVAL);
			subject_close(&s);
		}
		assert_errno(wait_now(e, zero, buffer, 1), EINVAL);
	}
	close(zero);
}

static void EP_ARG_01_maxevents(void **state)
{
	static const int bad[] = {0, -1, INT_MIN, MAX_EVENTS + 1, INT_MAX};
	struct wset w = wset_open(WSET_OF(state), 0);

	for (int ready = 0; ready < 2; ready++) {
		for (int e = 0; e < ENTRIES; e++) {
			for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
				assert_errno(wait_now(e, w.ep, buffer, bad[i]), EINVAL);
				assert_errno(wait_by(e, w.ep, buffer, bad[i], -1, NULL), EINVAL);
			}
			assert_int_equal(wait_now(e, w.ep, buffer, MAX_EVENTS), ready);
		}
		subject_fill(&w.sub[0]);
	}
	wset_close(&w);
}

static void EP_ARG_01_buffer_outside_user_space(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);

	for (int ready = 0; ready < 2; ready++) {
		for (int e = 0; e < ENTRIES; e++) {
			assert_errno(wait_now(e, w.ep, KERNEL_ADDRESS, 1), EFAULT);
			assert_errno(wait_by(e, w.ep, KERNEL_ADDRESS, 1, -1, NULL), EFAULT);
			/* maxevents is looked at first. */
			assert_errno(wait_now(e, w.ep, KERNEL_ADDRESS, 0), EINVAL);
			assert_errno(wait_now(e, w.ep, KERNEL_ADDRESS, -3), EINVAL);
		}
		subject_fill(&w.sub[0]);
	}
	wset_close(&w);
}

static void EP_ARG_01_order_of_checks(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int r;

	for (int e = 0; e < ENTRIES; e++) {
		/* Older kernels look at epfd last. */
		r = wait_now(e, closed_fd(), buffer, 0);
		either(r, errno, EBADF, EINVAL);
		r = wait_now(e, closed_fd(), KERNEL_ADDRESS, 1);
		either(r, errno, EBADF, EFAULT);
		/* On all kernels the range is checked before the kind of file. */
		assert_errno(wait_now(e, s.fd, KERNEL_ADDRESS, 1), EFAULT);
		assert_errno(wait_now(e, s.fd, buffer, 0), EINVAL);
	}
	subject_close(&s);
}

static void EP_ARG_02_bad_buffer_is_harmless_without_events(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	void *bad[] = {NULL, hole, readonly, room_for(0, 4)};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (int e = 0; e < ENTRIES; e++) {
			assert_int_equal(wait_now(e, w.ep, bad[i], 10), 0);
			assert_int_equal(wait_by(e, w.ep, bad[i], 10, 3, NULL), 0);
		}
	}
	wset_close(&w);
}

struct bad_wait {
	struct test_thread t;
	int ep;
	void *buf;
	int ret, err;
};

static void *bad_wait_main(void *arg)
{
	struct bad_wait *b = arg;

	b->ret = epoll_wait(b->ep, b->buf, 4, -1);
	b->err = errno;
	return NULL;
}

/* The sleeper notices the bad buffer when it has something to store, and keeps the event. */
static void EP_ARG_02_bad_buffer_noticed_after_the_sleep(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct wset w = wset_open(WSET_OF(state), EPOLLET);

		for (int j = 0; j < w.nsub; j++) {
			struct bad_wait b = {.ep = w.ep,
					     .buf = i == 0   ? NULL
						    : i == 1 ? (void *)hole
							     : (void *)readonly};

			thread_start(&b.t, bad_wait_main, &b);
			assert_true(thread_asleep(&b.t));
			subject_fill(&w.sub[j]);
			assert_true(thread_join(&b.t, SOON_MS));
			assert_int_equal(b.ret, -1);
			assert_int_equal(b.err, EFAULT);
			assert_true(ep_one(w.ep, EPOLLIN, w.data[j]));
			assert_int_equal(ep_count(w.ep), 0);
			subject_drain(&w.sub[j]);
			if (w.inner >= 0)
				ep_count(w.inner);
		}
		wset_close(&w);
	}
}

static struct subject *handled;

static void on_signal_come_and_go(int sig)
{
	int saved = errno;

	(void)sig;
	subject_fill(handled);
	subject_drain(handled);
	errno = saved;
}

/* What a handler makes during the sleep, and takes back, is nothing to the next wait. */
static void EP_ARG_02_what_a_handler_took_back_is_no_event(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal_come_and_go}, old;

	assert_ok(sigaction(SIGALRM, &sa, &old));
	for (int e = 0; e < ENTRIES; e++) {
		void *bad[] = {NULL, hole, readonly, room_for(0, 4)};
		struct wset w = wset_open(WSET_OF(state), e & 1 ? EPOLLET : 0);

		for (int j = 0; j < w.nsub; j++) {
			for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
				handled = &w.sub[j];
				alarms_every(20000);
				assert_errno(wait_by(e, w.ep, buffer, 4, SOON_MS, NULL), EINTR);
				alarms_every(0);
				assert_int_equal(wait_by(e, w.ep, bad[i], 4, i & 1, NULL), 0);
			}
			subject_fill(&w.sub[j]);
			assert_errno(wait_now(e, w.ep, hole, 4), EFAULT);
			assert_true(ep_one(w.ep, EPOLLIN, w.data[j]));
			subject_drain(&w.sub[j]);
			if (w.inner >= 0)
				ep_count(w.inner);
		}
		wset_close(&w);
	}
	assert_ok(sigaction(SIGALRM, &old, NULL));
}

static void on_signal(int sig)
{
	(void)sig;
}

/* How a sleeper leaves while an event comes: with no room for it, with room, or by a signal. */
enum leaving { LEAVES_FULL, LEAVES_WITH_ROOM, LEAVES_BY_SIGNAL, LEAVINGS };

/*
 * Nor is what came while a sleeper left for another reason, and is over now. slot: it takes no slot
 * of a wait with room for few either.
 */
static void EP_ARG_02_what_a_sleeper_left_is_no_event(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;
	bool slot = *(int *)*state;
	cpu_set_t cpus;

	assert_ok(sigaction(SIGUSR1, &sa, &old));
	/* So that both have come before the sleeper looks, mostly. */
	on_one_cpu(&cpus);
	for (int round = 0; round < 40 * LEAVINGS; round++) {
		enum leaving how = round % LEAVINGS;
		enum entry entry = round / LEAVINGS % ENTRIES;
		struct subject s[3] = {subject_new(KIND_EVENTFD), subject_new(KIND_PIPE),
				       subject_new(KIND_PIPE)};
		struct waiter w = {
			.how = entry, .ep = ep_new(), .max = how == LEAVES_FULL ? 1 : 8, .ms = -1};
		struct epoll_event ev[2];

		for (int i = 0; i < 3; i++)
			ep_add(w.ep, s[i].fd, EPOLLIN, (uint64_t)i);
		thread_start(&w.t, waiter_main, &w);
		assert_true(thread_asleep(&w.t));
		if (how == LEAVES_BY_SIGNAL)
			assert_int_equal(pthread_kill(w.t.id, SIGUSR1), 0);
		else
			subject_fill(&s[1]);
		subject_fill(&s[0]);
		waiter_join(&w);
		if (how == LEAVES_FULL)
			assert_int_equal(w.n, 1);
		else if (how == LEAVES_WITH_ROOM)
			assert_uint_in_range(w.n, 1, 2);
		else
			assert_true(w.n == 1 || (w.n == -1 && w.err == EINTR));
		subject_drain(&s[0]);
		if (slot) {
			if (how == LEAVES_BY_SIGNAL)
				subject_fill(&s[1]);
			subject_fill(&s[2]);
			assert_int_equal(epoll_wait(w.ep, ev, 2, 0), 2);
			assert_int_equal(ev[0].data.u64, 1);
			assert_int_equal(ev[1].data.u64, 2);
		} else {
			subject_drain(&s[1]);
			assert_int_equal(wait_now(entry, w.ep, hole, 4), 0);
		}
		for (int i = 0; i < 3; i++)
			subject_close(&s[i]);
		close(w.ep);
	}
	on_any_cpu(&cpus);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

/* Each of the n. */
static bool all_have(const int *times, int n)
{
	for (int i = 0; i < n; i++)
		if (!times[i])
			return false;
	return true;
}

/*
 * What is over before a sleeper has looked lets it sleep on. It may have been quicker, and on a
 * busy machine mostly is.
 */
static void EP_ARG_02_a_sleeper_sleeps_on_if_it_is_over(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	int64_t end = now_ms() + SOON_MS;
	int slept[3] = {0};
	cpu_set_t cpus;

	on_one_cpu(&cpus);
	for (int round = 0; round < 60 || (!all_have(slept, w.nsub) && now_ms() < end); round++) {
		struct subject *s = &w.sub[round % w.nsub];
		struct bad_wait b = {.ep = w.ep, .buf = round & 1 ? (void *)readonly : NULL};

		thread_start(&b.t, bad_wait_main, &b);
		assert_true(thread_asleep(&b.t));
		subject_fill(s);
		subject_drain(s);
		/* It sleeps on, or again: who is yet to run is not asleep. */
		slept[round % w.nsub] += thread_asleep(&b.t);
		subject_fill(s);
		assert_true(thread_join(&b.t, SOON_MS));
		assert_int_equal(b.ret, -1);
		assert_int_equal(b.err, EFAULT);
		subject_drain(s);
		assert_int_equal(ep_count(w.ep), 0);
	}
	on_any_cpu(&cpus);
	assert_true(all_have(slept, w.nsub));
	wset_close(&w);
}

/*
 * Four files that became ready in the order 1, 2, 3, 4: all eventfds, all
 * pipes, or by turns.
 */
#define QUAD 4

struct quad {
	int ep;
	struct subject s[QUAD];
};

static struct quad quad_open(enum wset_kind kind, uint32_t flags)
{
	struct quad q = {.ep = ep_new()};

	for (int i = 0; i < QUAD; i++) {
		enum kind k = kind == WSET_EVENTFD ? KIND_EVENTFD
			      : kind == WSET_PIPE  ? KIND_PIPE
			      : i % 2 == 0	   ? KIND_EVENTFD
						   : KIND_PIPE;

		q.s[i] = subject_new(k);
	}
	/* The order of ADD is not that of becoming ready. */
	for (int i = QUAD - 1; i >= 0; i--)
		ep_add(q.ep, q.s[i].fd, EPOLLIN | flags, (uint64_t)i + 1);
	for (int i = 0; i < QUAD; i++)
		subject_fill(&q.s[i]);
	return q;
}

static void quad_close(struct quad *q)
{
	for (int i = 0; i < QUAD; i++)
		subject_close(&q->s[i]);
	close(q->ep);
}

/* The order in which a wait with room for all reports the files, as digits: 3412. */
static int order_now(int ep)
{
	struct epoll_event ev[QUAD + 1];
	int n = ep_poll(ep, ev, QUAD + 1), order = 0;

	for (int i = 0; i < n; i++) {
		assert_int_equal(ev[i].events, EPOLLIN);
		order = order * 10 + (int)ev[i].data.u64;
	}
	return order;
}

static void EP_ARG_03_nothing_stored_gives_efault(void **state)
{
	static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
	void *bad[] = {NULL, hole, readonly, room_for(0, 1), room_for(0, 4), room_for(0, 8)};

	for (size_t f = 0; f < 4; f++) {
		for (int e = 0; e < ENTRIES; e++) {
			struct quad q = quad_open(WSET_OF(state), flags[f]);

			for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
				assert_errno(wait_now(e, q.ep, bad[i], QUAD), EFAULT);
				assert_errno(wait_now(e, q.ep, bad[i], 1), EFAULT);
			}
			/* Nothing was lost, moved or disarmed. */
			if (WSET_TWO_SIDES(WSET_OF(state)) && under_pollux())
				assert_int_equal(ep_count(q.ep), QUAD);
			else
				assert_int_equal(order_now(q.ep), 1234);
			assert_int_equal(ep_count(q.ep), flags[f] == 0 ? QUAD : 0);
			quad_close(&q);
		}
	}
}

static void EP_ARG_03_part_stored_is_returned(void **state)
{
	static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

	for (size_t f = 0; f < 4; f++) {
		for (int e = 0; e < ENTRIES; e++) {
			for (size_t k = 1; k < QUAD; k++) {
				struct quad q = quad_open(WSET_OF(state), flags[f]);
				struct epoll_event *ev = room_for(k, e % 2 == 0 ? 0 : 4);
				unsigned int seen = 0;
				int n;

				assert_int_equal(wait_now(e, q.ep, ev, QUAD), k);
				for (size_t i = 0; i < k; i++) {
					assert_int_equal(ev[i].events, EPOLLIN);
					seen |= 1U << ev[i].data.u64;
				}
				/* The rest is still there, each event once. */
				n = ep_poll(q.ep, buffer, 16);
				assert_int_equal(n, flags[f] == 0 ? QUAD : QUAD - (int)k);
				for (int i = 0; i < n; i++) {
					uint64_t d = buffer[i].data.u64;

					if (flags[f] != 0)
						assert_int_equal(seen & 1U << d, 0);
					seen |= 1U << d;
				}
				assert_int_equal(seen, 2 + 4 + 8 + 16);
				quad_close(&q);
			}
		}
	}
}

/* Nested epolls and a second page of results: the array ends far behind its start. */
static void EP_ARG_03_long_array_ends_in_a_hole(void **state)
{
	enum { FILES = 64, FIT = 41 };
	struct subject s[FILES];
	int ep = ep_new(), got = 0;
	bool seen[FILES] = {false};
	struct epoll_event *ev = room_for(FIT, 0), all[FILES];

	(void)state;
	for (int i = 0; i < FILES; i++) {
		s[i] = subject_new(i % 3 == 0 ? KIND_PIPE : KIND_EVENTFD);
		ep_add(ep, s[i].fd, EPOLLIN | EPOLLET, (uint64_t)i);
		subject_fill(&s[i]);
	}
	assert_int_equal(epoll_wait(ep, ev, FILES, -1), FIT);
	for (int i = 0; i < FIT; i++) {
		assert_false(seen[ev[i].data.u64]);
		seen[ev[i].data.u64] = true;
	}
	got = ep_poll(ep, all, FILES);
	assert_int_equal(got, FILES - FIT);
	for (int i = 0; i < got; i++) {
		assert_false(seen[all[i].data.u64]);
		seen[all[i].data.u64] = true;
	}
	assert_int_equal(ep_count(ep), 0);
	for (int i = 0; i < FILES; i++)
		subject_close(&s[i]);
	close(ep);
}

/* The wait goes on behind the last event that there is room for, and drops what is not ready. */
static void EP_ARG_03_what_is_not_ready_is_dropped_there_too(void **state)
{
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	for (int cached = 0; cached < 2; cached++) {
		for (int e = 0; e < ENTRIES; e++) {
			struct subject s[2] = {subject_new(KIND_PIPE), subject_new(KIND_PIPE)};
			struct subject other = subject_new(KIND_EVENTFD);
			int ep = ep_new();
			struct epoll_event ev;

			for (int i = 0; i < 2; i++) {
				ep_add(ep, s[i].fd, EPOLLIN, (uint64_t)i);
				subject_fill(&s[i]);
			}
			if (cached)
				ep_add(ep, other.fd, EPOLLIN, 2);
			subject_drain(&s[1]);
			assert_int_equal(wait_by(e, ep, room_for(1, 10), QUAD, 0, &none), 1);
			/* It comes back behind what was there all the time. */
			subject_fill(&s[1]);
			assert_int_equal(wait_now(e, ep, &ev, 1), 1);
			assert_int_equal(ev.data.u64, 0);
			subject_close(&s[0]);
			subject_close(&s[1]);
			subject_close(&other);
			close(ep);
		}
	}
}

static void EP_ARG_04_order_after_a_short_delivery(void **state)
{
	static const int lt[] = {1234, 2341, 3412, 4123};
	static const int et[] = {1234, 234, 34, 4};

	NEEDS_ONE_ORDER(WSET_TWO_SIDES(WSET_OF(state)));
	for (int e = 0; e < ENTRIES; e++) {
		for (size_t k = 0; k < QUAD; k++) {
			struct quad q = quad_open(WSET_OF(state), 0);
			int r = wait_now(e, q.ep, room_for(k, 0), QUAD);

			assert_int_equal(r, k == 0 ? -1 : (int)k);
			assert_int_equal(order_now(q.ep), lt[k]);
			quad_close(&q);

			q = quad_open(WSET_OF(state), EPOLLET);
			r = wait_now(e, q.ep, room_for(k, 0), QUAD);
			assert_int_equal(r, k == 0 ? -1 : (int)k);
			assert_int_equal(order_now(q.ep), et[k]);
			assert_int_equal(order_now(q.ep), 0);
			quad_close(&q);
		}
	}
}

/* Two short deliveries in a row go on where the first stopped. */
static void EP_ARG_04_two_short_deliveries(void **state)
{
	struct epoll_event *ev = room_for(1, 0);
	struct quad q;

	NEEDS_ONE_ORDER(WSET_TWO_SIDES(WSET_OF(state)));
	q = quad_open(WSET_OF(state), 0);
	for (int round = 0; round < 2 * QUAD; round++) {
		assert_int_equal(epoll_wait(q.ep, ev, QUAD, 0), 1);
		assert_int_equal(ev->data.u64, round % QUAD + 1);
	}
	quad_close(&q);
}

static void EP_ARG_05_writes_no_more_than_maxevents(void **state)
{
	struct epoll_event ev[8];
	unsigned char mark[sizeof(ev)];

	memset(mark, 0xa5, sizeof(mark));
	for (int e = 0; e < ENTRIES; e++) {
		for (int max = 1; max <= 8; max++) {
			struct quad q = quad_open(WSET_OF(state), 0);
			int n, want = max < QUAD ? max : QUAD;

			memset(ev, 0xa5, sizeof(ev));
			n = wait_now(e, q.ep, ev, max);
			assert_int_equal(n, want);
			assert_memory_equal(&ev[n], mark, sizeof(ev) - (size_t)n * sizeof(ev[0]));
			/* Each item once, however much room there is. */
			for (int i = 0; i < n; i++)
				for (int j = 0; j < i; j++)
					assert_int_not_equal(ev[i].data.u64, ev[j].data.u64);
			quad_close(&q);
		}
	}
}

static void EP_ARG_05_empty_return_writes_nothing(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	struct epoll_event ev[8];
	unsigned char mark[sizeof(ev)];

	memset(mark, 0xa5, sizeof(mark));
	memset(ev, 0xa5, sizeof(ev));
	for (int e = 0; e < ENTRIES; e++) {
		assert_int_equal(wait_now(e, w.ep, ev, 8), 0);
		assert_int_equal(wait_by(e, w.ep, ev, 8, 1, NULL), 0);
		/* An item that is queued and not ready any more leaves no trace either. */
		for (int i = 0; i < w.nsub; i++) {
			subject_fill(&w.sub[i]);
			subject_drain(&w.sub[i]);
		}
		assert_int_equal(wait_now(e, w.ep, ev, 8), 0);
		assert_memory_equal(ev, mark, sizeof(ev));
	}
	wset_close(&w);
}

static long raw_pwait(int ep, int max, const void *mask, size_t size)
{
	return syscall(SYS_epoll_pwait, ep, buffer, max, 0, mask, size);
}

static long raw_pwait2(int ep, int max, const void *ts, const void *mask, size_t size)
{
	return syscall(SYS_epoll_pwait2, ep, buffer, max, ts, mask, size);
}

static const size_t wrong_size[] = {0, 4, 7, 9, 16, 128, SIZE_MAX};

static void EP_ARG_06_without_mask_the_size_is_ignored(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	struct timespec ts = {0, 0};

	for (int ready = 0; ready < 2; ready++) {
		for (size_t i = 0; i < sizeof(wrong_size) / sizeof(wrong_size[0]); i++) {
			assert_int_equal(raw_pwait(w.ep, 1, NULL, wrong_size[i]), ready);
			assert_int_equal(raw_pwait2(w.ep, 1, &ts, NULL, wrong_size[i]), ready);
		}
		subject_fill(&w.sub[0]);
	}
	wset_close(&w);
}

static void EP_ARG_06_mask_errors_come_first(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	struct timespec ts = {0, 0};
	const int epfd[] = {w.ep, w.sub[0].fd, -1};
	void *bad[] = {hole, (void *)8, KERNEL_ADDRESS};
	sigset_t mask;

	sigemptyset(&mask);
	subject_fill(&w.sub[0]);
	for (int f = 0; f < 3; f++) {
		for (int max = 0; max < 2; max++) {
			for (size_t i = 0; i < sizeof(wrong_size) / sizeof(wrong_size[0]); i++) {
				size_t n = wrong_size[i];

				/* The size comes before the mask is read. */
				assert_errno(raw_pwait(epfd[f], max, &mask, n), EINVAL);
				assert_errno(raw_pwait(epfd[f], max, hole, n), EINVAL);
				assert_errno(raw_pwait2(epfd[f], max, &ts, &mask, n), EINVAL);
				assert_errno(raw_pwait2(epfd[f], max, &ts, hole, n), EINVAL);
			}
			for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
				sigset_t *m = bad[i];

				assert_errno(raw_pwait(epfd[f], max, m, 8), EFAULT);
				assert_errno(raw_pwait2(epfd[f], max, &ts, m, 8), EFAULT);
				assert_errno(epoll_pwait(epfd[f], buffer, max, 0, m), EFAULT);
				assert_errno(epoll_pwait2(epfd[f], buffer, max, &ts, m), EFAULT);
			}
		}
	}
	assert_int_equal(raw_pwait(w.ep, 1, &mask, 8), 1);
	assert_int_equal(raw_pwait(w.sub[0].fd, 1, &mask, 8), -1);
	wset_close(&w);
}

static void EP_ARG_07_timespec_comes_before_all(void **state)
{
	static const struct timespec wrong[] = {{-1, 0},       {0, -1},	      {0, 1000000000},
						{LONG_MIN, 0}, {5, LONG_MAX}, {-1, 500000000}};
	struct wset w = wset_open(WSET_OF(state), 0);
	const int epfd[] = {w.ep, w.sub[0].fd, -1};
	void *bad[] = {hole, (void *)8, KERNEL_ADDRESS};
	sigset_t mask;

	sigemptyset(&mask);
	subject_fill(&w.sub[0]);
	for (int f = 0; f < 3; f++) {
		for (int max = 0; max < 2; max++) {
			for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
				struct timespec *t = bad[i];

				assert_errno(raw_pwait2(epfd[f], max, t, &mask, 4), EFAULT);
				assert_errno(raw_pwait2(epfd[f], max, t, NULL, 8), EFAULT);
				assert_errno(epoll_pwait2(epfd[f], buffer, max, t, NULL), EFAULT);
			}
			for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
				const struct timespec *t = &wrong[i];

				assert_errno(raw_pwait2(epfd[f], max, t, hole, 8), EINVAL);
				assert_errno(raw_pwait2(epfd[f], max, t, NULL, 8), EINVAL);
				assert_errno(epoll_pwait2(epfd[f], buffer, max, t, NULL), EINVAL);
			}
		}
	}
	wset_close(&w);
}

static void EP_ARG_08_libc_passes_the_size(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	struct timespec ts = {0, 0};
	sigset_t full;

	sigfillset(&full);
	for (int ready = 0; ready < 2; ready++) {
		assert_int_equal(epoll_pwait(w.ep, buffer, 4, 0, &full), ready);
		assert_int_equal(epoll_pwait2(w.ep, buffer, 4, &ts, &full), ready);
		subject_fill(&w.sub[0]);
	}
	wset_close(&w);
}

struct forked {
	int ep, go;
};

static int wait_in_the_child(void *arg)
{
	struct forked *f = arg;
	struct pollfd p = {.fd = f->go, .events = POLLIN};

	if (poll(&p, 1, SOON_MS) != 1)
		return 1;
	for (int i = 0; i < 2; i++) {
		errno = 0;
		if (epoll_wait(f->ep, (void *)hole, 64, 0) != -1 || errno != EFAULT)
			return 2;
	}
	return ep_one(f->ep, EPOLLIN, 6) ? 0 : 3;
}

/* What the parent adds after a fork the child waits for, too (EP-KEY-09). */
static void EP_ARG_02_what_was_added_after_a_fork(void **state)
{
	struct forked f = {.ep = ep_new(), .go = efd_new(0, EFD_NONBLOCK)};
	int fd = efd_new(0, EFD_NONBLOCK), ready = efd_new(1, 0);
	pid_t pid;

	(void)state;
	assert_ok(ep_ctl(f.ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 5));
	assert_ok(ep_ctl(f.ep, EPOLL_CTL_DEL, fd, 0, 0));
	pid = child_start(wait_in_the_child, &f);
	assert_ok(ep_ctl(f.ep, EPOLL_CTL_ADD, ready, EPOLLIN | EPOLLET, 6));
	efd_add(f.go, 1);
	assert_int_equal(child_end(pid), 0);
	close(f.ep);
	close(f.go);
	close(fd);
	close(ready);
}

int main(void)
{
	static int no = 0, yes = 1;
	static const struct CMUnitTest ep_arg[] = {
		cmocka_unit_test(EP_ARG_01_epfd_that_is_not_open),
		cmocka_unit_test(EP_ARG_01_epfd_that_is_not_an_epoll),
		EACH_WSET(EP_ARG_01_maxevents),
		EACH_WSET(EP_ARG_01_buffer_outside_user_space),
		EACH_KIND(EP_ARG_01_order_of_checks),
		EACH_WSET(EP_ARG_02_bad_buffer_is_harmless_without_events),
		EACH_WSET(EP_ARG_02_bad_buffer_noticed_after_the_sleep),
		EACH_WSET(EP_ARG_02_what_a_handler_took_back_is_no_event),
		EACH_WSET(EP_ARG_02_a_sleeper_sleeps_on_if_it_is_over),
		cmocka_unit_test_prestate(EP_ARG_02_what_a_sleeper_left_is_no_event, &no),
		{"EP_ORD_06_what_a_sleeper_left_takes_no_slot",
		 EP_ARG_02_what_a_sleeper_left_is_no_event, NULL, NULL, &yes},
		cmocka_unit_test(EP_ARG_02_what_was_added_after_a_fork),
		EACH_FLAT_WSET(EP_ARG_03_nothing_stored_gives_efault),
		EACH_FLAT_WSET(EP_ARG_03_part_stored_is_returned),
		cmocka_unit_test(EP_ARG_03_long_array_ends_in_a_hole),
		cmocka_unit_test(EP_ARG_03_what_is_not_ready_is_dropped_there_too),
		EACH_FLAT_WSET(EP_ARG_04_order_after_a_short_delivery),
		EACH_FLAT_WSET(EP_ARG_04_two_short_deliveries),
		EACH_FLAT_WSET(EP_ARG_05_writes_no_more_than_maxevents),
		EACH_WSET(EP_ARG_05_empty_return_writes_nothing),
		EACH_WSET(EP_ARG_06_without_mask_the_size_is_ignored),
		EACH_WSET(EP_ARG_06_mask_errors_come_first),
		EACH_WSET(EP_ARG_07_timespec_comes_before_all),
		EACH_WSET(EP_ARG_08_libc_passes_the_size),
	};

	if (map_pages() != 0) {
		perror("mmap");
		return 1;
	}
	return run_group(ep_arg);
}
