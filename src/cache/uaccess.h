/* SPDX-License-Identifier: MIT */
/*
 * Touching the program's memory, as the kernel does: a bad pointer gives EFAULT.
 *
 * The copies below are the only instructions of the library that touch pointers
 * of the program. plx_uaccess_fixup, called from a SIGSEGV or SIGBUS handler, lets
 * a fault in one of them come out as -EFAULT. The drop-in installs such a handler
 * and hides it from the program; an embedding program may do so through
 * pollux_guard_faults(). Without a handler a bad pointer faults, as in any library.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define PLX_USER_END 0x7ffffffff000ull
#else
#define PLX_USER_END (1ull << 52)
#endif

/* Whether n bytes at buf lie where memory of the program can be. */
static inline bool plx_user_range(const void *buf, size_t n)
{
	return n <= PLX_USER_END && (uintptr_t)buf <= PLX_USER_END - n;
}

/* n bytes; 0 or -EFAULT (some bytes may have been copied). */
int plx_copy_in(void *dst, const void *user, size_t n) __asm__("plx_ua_copy");
int plx_copy_out(void *user, const void *src, size_t n) __asm__("plx_ua_copy");
/* After a copy that has faulted: stores the bytes before the first that faults. */
void plx_copy_out_head(void *user, const void *src, size_t n);
/*
 * Accesses without a call, for the paths where one would show: the eight bytes of a
 * counter; a word that the program may change at the same time (acquire, release); the 32
 * bytes of an event of AIO and the 64 of a request. 0 or -EFAULT. The pair of addresses in
 * plx_extable says where a fault continues.
 */
#if defined(__x86_64__)
#define PLX_UA_FIXUP(at)                                                                           \
	"	.pushsection .text.plx_fixup, \"ax\"\n"                                                  \
	"9:	mov	$-14, %[err]\n"                                                                    \
	"	jmp	8b\n"                                                                                \
	"	.popsection\n"                                                                           \
	"	.pushsection plx_extable, \"a\"\n"                                                       \
	"	.balign 4\n"                                                                             \
	"	.long	" #at "b - ., 9b - .\n"                                                    \
	"	.popsection\n"

#define PLX_LOAD_USER(name, type)                                                                  \
	static inline int name(type *value, const void *user)                                      \
	{                                                                                          \
		type v;                                                                            \
		int err = 0;                                                                       \
                                                                                                   \
		__asm__ __volatile__("1:	mov	(%[user]), %[v]\n"                                    \
				     "8:\n" PLX_UA_FIXUP(1)                                        \
				     : [v] "=&r"(v), [err] "+r"(err)                               \
				     : [user] "r"(user)                                            \
				     : "memory");                                                  \
		*value = v;                                                                        \
		return err;                                                                        \
	}

PLX_LOAD_USER(plx_load_user64, uint64_t)
PLX_LOAD_USER(plx_load_user32, uint32_t)

static inline int plx_store_user32(void *user, uint32_t value)
{
	int err = 0;

	__asm__ __volatile__("1:	mov	%[v], (%[user])\n"
			     "8:\n" PLX_UA_FIXUP(1)
			     : [err] "+r"(err)
			     : [user] "r"(user), [v] "r"(value)
			     : "memory");
	return err;
}

/* A store that changes nothing, whoever else stores there. */
static inline int plx_touch_user(void *user)
{
	int err = 0;

	__asm__ __volatile__("1:	lock orb $0, (%[user])\n"
			     "8:\n" PLX_UA_FIXUP(1)
			     : [err] "+r"(err)
			     : [user] "r"(user)
			     : "memory", "cc");
	return err;
}

static inline int plx_copy_out32(void *user, const void *src)
{
	int err = 0;

	__asm__ __volatile__("	movups	(%[src]), %%xmm0\n"
			     "	movups	16(%[src]), %%xmm1\n"
			     "1:	movups	%%xmm0, (%[user])\n"
			     "2:	movups	%%xmm1, 16(%[user])\n"
			     "8:\n" PLX_UA_FIXUP(1) PLX_UA_FIXUP(2)
			     : [err] "+r"(err)
			     : [user] "r"(user), [src] "r"(src)
			     : "memory", "xmm0", "xmm1");
	return err;
}

static inline int plx_copy_in64(void *dst, const void *user)
{
	int err = 0;

	__asm__ __volatile__("1:	movups	(%[user]), %%xmm0\n"
			     "2:	movups	16(%[user]), %%xmm1\n"
			     "3:	movups	32(%[user]), %%xmm2\n"
			     "4:	movups	48(%[user]), %%xmm3\n"
			     "	movups	%%xmm0, (%[dst])\n"
			     "	movups	%%xmm1, 16(%[dst])\n"
			     "	movups	%%xmm2, 32(%[dst])\n"
			     "	movups	%%xmm3, 48(%[dst])\n"
			     "8:\n" PLX_UA_FIXUP(1) PLX_UA_FIXUP(2) PLX_UA_FIXUP(3) PLX_UA_FIXUP(4)
			     : [err] "+r"(err)
			     : [user] "r"(user), [dst] "r"(dst)
			     : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
	return err;
}
#else
int plx_load_user32(uint32_t *value, const void *user);
int plx_store_user32(void *user, uint32_t value);
int plx_touch_user(void *user);

static inline int plx_load_user64(uint64_t *value, const void *user)
{
	return plx_copy_in(value, user, sizeof(*value));
}

static inline int plx_copy_out32(void *user, const void *src)
{
	return plx_copy_out(user, src, 32);
}

static inline int plx_copy_in64(void *dst, const void *user)
{
	return plx_copy_in(dst, user, 64);
}
#endif

/* Touches every page of [user, user + n) as for a store, without changing it. */
static inline int plx_probe_write(void *user, size_t n)
{
	uintptr_t p = (uintptr_t)user, last = p + n - 1;
	int r = n && last < p ? -EFAULT : 0;

	if (!n)
		return 0;
	for (; !r && p >> 12 != last >> 12; p = (p | 4095) + 1)
		r = plx_touch_user((void *)p);
	return r ? r : plx_touch_user((void *)last);
}
/*
 * ucontext of a SIGSEGV or SIGBUS: true if the fault was in one of the copies; the
 * context has then been changed so that the copy returns -EFAULT.
 */
bool plx_uaccess_fixup(void *ucontext);
