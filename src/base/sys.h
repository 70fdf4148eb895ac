/* SPDX-License-Identifier: MIT */
/*
 * System calls without libc. The drop-in replaces libc's names, `syscall` among
 * them, so code that must reach the kernel itself cannot go through libc.
 * Results are the kernel's: a negative errno on failure. None of these is a
 * cancellation point.
 */
#ifndef PLX_BASE_SYS_H
#define PLX_BASE_SYS_H

#include <sched.h>
#include <sys/syscall.h>

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
 * fn is run by a thread that has descriptors of its own, a copy of ours, on a stack which ends at
 * `stack`; nobody uses that any more when this returns. All signals must be blocked. Positive, or
 * -errno. Libc's clone may be one of a sanitizer's run-time, which takes this for a fork.
 */
static inline long plx_sys_apart(void (*fn)(void *), void *arg, void *stack)
{
	const long flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_VFORK;
#if defined(__x86_64__)
	long ret;
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;

	__asm__ __volatile__("syscall\n\t"
			     "test %%rax, %%rax\n\t"
			     "jnz 1f\n\t"
			     "mov %[arg], %%rdi\n\t"
			     "call *%[fn]\n\t"
			     "xor %%edi, %%edi\n\t"
			     "mov %[exit], %%eax\n\t"
			     "syscall\n\t"
			     "ud2\n"
			     "1:"
			     : "=a"(ret)
			     : "a"(SYS_clone), "D"(flags), "S"(stack), "d"(0l), "r"(r10),
			       "r"(r8), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
			     : "rcx", "r11", "memory", "cc");
	return ret;
#else
	register long x8 __asm__("x8") = SYS_clone;
	register long x0 __asm__("x0") = flags;
	register void *x1 __asm__("x1") = stack;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;

	__asm__ __volatile__("svc 0\n\t"
			     "cbnz x0, 1f\n\t"
			     "mov x0, %[arg]\n\t"
			     "blr %[fn]\n\t"
			     "mov x0, xzr\n\t"
			     "mov x8, %[exit]\n\t"
			     "svc 0\n\t"
			     "brk 0\n"
			     "1:"
			     : "+r"(x0)
			     : "r"(x8), "r"(x1), "r"(x2), "r"(x3),
			       "r"(x4), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
			     : "memory", "cc");
	return x0;
#endif
}

#define plx_sys0(nr) plx_sys6((nr), 0, 0, 0, 0, 0, 0)
#define plx_sys1(nr, a) plx_sys6((nr), (long)(a), 0, 0, 0, 0, 0)
#define plx_sys2(nr, a, b) plx_sys6((nr), (long)(a), (long)(b), 0, 0, 0, 0)
#define plx_sys3(nr, a, b, c) plx_sys6((nr), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define plx_sys4(nr, a, b, c, d) plx_sys6((nr), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#endif
