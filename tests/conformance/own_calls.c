/* SPDX-License-Identifier: MIT */
/*
 * A program whose event loop calls the kernel by instructions of its own, as those of Rust do that
 * use rustix, and watches what comes from libc. No rule says so; who is given a descriptor may use
 * it by any means.
 */
#include "waiting.h"

#include <unwind.h>

/* What Rust's library imports. */
int __xpg_strerror_r(int error, char *buf, size_t size);
__attribute__((used)) static void *const imports[] = {__xpg_strerror_r, _Unwind_GetTextRelBase};

static long own_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
#if defined(__x86_64__)
	register struct epoll_event *event __asm__("r10") = ev;
	long r;

	__asm__ volatile("mov $233, %%eax; syscall"
			 : "=&a"(r)
			 : "D"((long)ep), "S"((long)op), "d"((long)fd), "r"(event)
			 : "rcx", "r11", "memory");
	return r;
#else
	register long r __asm__("x0") = ep;
	register long second __asm__("x1") = op, third __asm__("x2") = fd;
	register struct epoll_event *event __asm__("x3") = ev;

	__asm__ volatile("mov w8, #21; svc #0"
			 : "+r"(r)
			 : "r"(second), "r"(third), "r"(event)
			 : "x8", "memory");
	return r;
#endif
}

static void watch(int ep, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

	assert_int_equal(own_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
}

static void reports(int ep)
{
	struct epoll_event ev;

	assert_int_equal(epoll_wait(ep, &ev, 1, 1000), 1);
	assert_int_equal(ev.data.u64, 7);
}

static void own_call_watches_an_eventfd_of_libc(void **state)
{
	int ep = ep_new(), fd = eventfd(0, EFD_NONBLOCK);

	(void)state;
	assert_true(fd >= 0);
	watch(ep, fd);
	assert_int_equal(eventfd_write(fd, 1), 0);
	reports(ep);
	close(fd);
	close(ep);
}

static void own_call_watches_an_epoll_of_libc(void **state)
{
	int ep = ep_new(), inner = ep_new(), fd = eventfd(0, EFD_NONBLOCK);

	(void)state;
	assert_true(fd >= 0);
	ep_add(inner, fd, EPOLLIN, 1);
	watch(ep, inner);
	assert_int_equal(eventfd_write(fd, 1), 0);
	reports(ep);
	close(fd);
	close(inner);
	close(ep);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_call_watches_an_eventfd_of_libc),
		cmocka_unit_test(own_call_watches_an_epoll_of_libc),
	};

	return run_group(tests);
}
