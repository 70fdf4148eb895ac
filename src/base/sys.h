/* SPDX-License-Identifier: MIT */
/*
 * System calls without libc. The drop-in replaces libc's names, `syscall` among
 * them, so code that must reach the kernel itself cannot go through libc.
 * Results are the kernel's: a negative errno on failure. None of these is a
 * cancellation point.
 */
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

static inline long plx_sys6(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ __volatile__("syscall"
			     : "=a"(ret)
			     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ __volatile__("svc 0"
			     : "+r"(x0)
			     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			     : "memory");
	return x0;
#else
#error "pollux runs on x86-64 and aarch64"
#endif
}

/*
 * What the kernel has told the program at its start; 0: nothing. By libc's other name for
 * getauxval, which is reserved, so that no program and no preloaded library has a function of that
 * name.
 */
unsigned long plx_auxv(unsigned long type) __asm__("__getauxval");

#define plx_sys0(nr) plx_sys6((nr), 0, 0, 0, 0, 0, 0)
#define plx_sys1(nr, a) plx_sys6((nr), (long)(a), 0, 0, 0, 0, 0)
#define plx_sys2(nr, a, b) plx_sys6((nr), (long)(a), (long)(b), 0, 0, 0, 0)
#define plx_sys3(nr, a, b, c) plx_sys6((nr), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define plx_sys4(nr, a, b, c, d) plx_sys6((nr), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

/* Without a mask: the call that libc makes, so that a sandbox knows it. */
#ifdef SYS_epoll_wait
#define PLX_EPOLL_WAIT SYS_epoll_wait
#else
#define PLX_EPOLL_WAIT SYS_epoll_pwait
#endif

/* poll without a sleep. */
static inline long plx_sys_poll(void *fds, unsigned long n)
{
#ifdef SYS_poll
	/* The other one copies a time in and out. */
	return plx_sys3(SYS_poll, fds, n, 0);
#else
	struct timespec now = {0};

	return plx_sys6(SYS_ppoll, (long)fds, (long)n, (long)&now, 0, _NSIG / 8, 0);
#endif
}
