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
#ifndef PLX_POSIX_UACCESS_H
#define PLX_POSIX_UACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n bytes; 0 or -EFAULT (some bytes may have been copied). */
int plx_copy_in(void *dst, const void *user, size_t n);
int plx_copy_out(void *user, const void *src, size_t n);
/* A word that the program may change at the same time: acquire, release; 0 or -EFAULT. */
int plx_load_user32(uint32_t *value, const void *user);
int plx_store_user32(void *user, uint32_t value);
/*
 * The eight bytes of a counter, without a call: the one access of the program's
 * memory on the path of a write. The pair of addresses in plx_extable says where a
 * fault in it continues.
 */
static inline int plx_load_user64(uint64_t *value, const void *user)
{
#if defined(__x86_64__)
	uint64_t v;
	int err = 0;

	__asm__ __volatile__("1:	mov	(%2), %0\n"
			     "2:\n"
			     "	.pushsection .text.plx_fixup, \"ax\"\n"
			     "3:	mov	$-14, %1\n"
			     "	jmp	2b\n"
			     "	.popsection\n"
			     "	.pushsection plx_extable, \"a\"\n"
			     "	.balign 4\n"
			     "	.long	1b - ., 3b - .\n"
			     "	.popsection\n"
			     : "=&r"(v), "+r"(err)
			     : "r"(user)
			     : "memory");
	*value = v;
	return err;
#else
	return plx_copy_in(value, user, sizeof(*value));
#endif
}

/* Touches every page of [user, user + n) as for a store, without changing it. */
int plx_probe_write(void *user, size_t n);
/*
 * ucontext of a SIGSEGV or SIGBUS: true if the fault was in one of the copies; the
 * context has then been changed so that the copy returns -EFAULT.
 */
bool plx_uaccess_fixup(void *ucontext);

#endif
