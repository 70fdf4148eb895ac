/* SPDX-License-Identifier: MIT */
/* EP-WKU: EPOLLWAKEUP. */
#include "waiting.h"

#define EP_CAP_BLOCK_SUSPEND ((uint64_t)1 << CAP_BLOCK_SUSPEND)

/* The interest that fdinfo shows for the number, or 0 when there is no line. */
static uint32_t info_events(int ep, int tfd)
{
	char info[INFO_MAX];
	unsigned int events;
	int num;

	info_read(ep, info);
	for (char *p = strstr(info, "tfd:"); p != NULL; p = strstr(p + 1, "tfd:"))
		if (sscanf(p, "tfd: %d events: %x", &num, &events) == 2 && num == tfd)
			return events;
	return 0;
}

static void EP_WKU_01_dropped_without_the_capability(enum kind kind)
{
	struct subject s = subject_new(kind);
	uint64_t caps = cap_get();
	int ep = ep_new();

	cap_set(caps & ~EP_CAP_BLOCK_SUSPEND);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLWAKEUP, 1));
	assert_int_equal(info_events(ep, s.fd), EPOLLIN | EPOLLERR | EPOLLHUP);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET | EPOLLWAKEUP, 2));
	assert_int_equal(info_events(ep, s.fd), EPOLLIN | EPOLLET | EPOLLERR | EPOLLHUP);
	assert_ok(raw_ctl(ep, EPOLL_CTL_DEL, s.fd, EPOLLWAKEUP, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLWAKEUP, 3));
	assert_int_equal(info_events(ep, s.fd), EPOLLIN | EPOLLEXCLUSIVE | EPOLLERR | EPOLLHUP);
	cap_set(caps);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 3));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_WKU_01_dropped_without_the_capability)

/* With the capability it is kept only where the kernel supports suspend. */
static void EP_WKU_01_never_an_error(enum kind kind)
{
	struct subject s = subject_new(kind);
	const uint32_t rest = EPOLLIN | EPOLLERR | EPOLLHUP;
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLWAKEUP, 1));
	assert_int_equal(info_events(ep, s.fd) & ~(uint32_t)EPOLLWAKEUP, rest);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLWAKEUP, 2));
	assert_int_equal(info_events(ep, s.fd) & ~(uint32_t)EPOLLWAKEUP, EPOLLERR | EPOLLHUP);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 3));
	assert_int_equal(info_events(ep, s.fd), rest);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 3));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_WKU_01_never_an_error)

/* Two items that differ in the flag alone report the same at each step. */
static void EP_WKU_02_delivery_is_the_same(enum kind kind)
{
	static const uint32_t modes[] = {0,
					 EPOLLET,
					 EPOLLONESHOT,
					 EPOLLET | EPOLLONESHOT,
					 EPOLLEXCLUSIVE,
					 EPOLLEXCLUSIVE | EPOLLET};

	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		struct subject s = subject_new(kind);
		int with = ep_new(), without = ep_new();
		struct epoll_event a, b;
		struct waiter *w;

		assert_ok(ep_ctl(with, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLWAKEUP | modes[m], 1));
		assert_ok(ep_ctl(without, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 1));
		for (int step = 0; step < 6; step++) {
			int n;

			if (step == 4)
				subject_drain(&s);
			else if (step % 2 == 0)
				subject_fill(&s);
			memset(&a, 0, sizeof(a));
			memset(&b, 0, sizeof(b));
			n = ep_poll(without, &b, 1);
			assert_int_equal(ep_poll(with, &a, 1), n);
			assert_int_equal(a.events, b.events);
			assert_int_equal(a.data.u64, b.data.u64);
			if (step == 0) {
				assert_int_equal(n, 1);
				assert_int_equal(a.events, EPOLLIN);
			}
		}
		if (!(modes[m] & EPOLLEXCLUSIVE))
			assert_ok(ep_ctl(with, EPOLL_CTL_MOD, s.fd,
					 EPOLLIN | EPOLLWAKEUP | modes[m], 2));
		w = waiter_new(with, 8);
		subject_fill(&s);
		waiter_got(w, EPOLLIN, modes[m] & EPOLLEXCLUSIVE ? 1 : 2);
		close(with);
		close(without);
		subject_close(&s);
	}
}
KIND_TESTS(EP_WKU_02_delivery_is_the_same)

int main(void)
{
	const struct CMUnitTest tests[] = {
		kind_unit_tests(EP_WKU_01_dropped_without_the_capability),
		kind_unit_tests(EP_WKU_01_never_an_error),
		kind_unit_tests(EP_WKU_02_delivery_is_the_same),
	};

	return run_group(tests);
}
