/* SPDX-License-Identifier: MIT */
/*
 * dlopen with RTLD_DEEPBIND, dlmopen
 *
 * What is loaded so has its own way to libc, past us: it would wait for the kernel's count of an
 * eventfd that is cached. So adoption of descriptors ends. Libc's functions are entered by a jump:
 * they go by who calls them.
 */
#include "preload/preload.h"

static struct plx_outcome load(bool apart, void *next)
{
	int saved = errno;

	if (apart && !plx_vfork_child() && !plx_load_acq(&plx_descriptors_out))
		plx_stop_adopting_descriptors(PLX_OUT_SYSCALL);
	errno = saved;
	return (struct plx_outcome){.next = next};
}

#define ENTERED __attribute__((used, visibility("hidden"))) struct plx_outcome

ENTERED plx_dlopen(const struct plx_args *s);
ENTERED plx_dlopen(const struct plx_args *s)
{
	return load((int)s->a & RTLD_DEEPBIND, (void *)plx_load(&plx_real.dlopen));
}
PLX_ENTRY(dlopen, plx_dlopen);

ENTERED plx_dlmopen(const struct plx_args *s);
ENTERED plx_dlmopen(const struct plx_args *s)
{
	return load(s->nr != LM_ID_BASE, (void *)plx_load(&plx_real.dlmopen));
}
PLX_ENTRY(dlmopen, plx_dlmopen);
