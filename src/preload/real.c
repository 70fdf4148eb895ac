/* SPDX-License-Identifier: MIT */
/*
 * Finding the real functions: all of them in our constructor. A call that comes before
 * that finds its own function and no other. The reason is what a failed lookup does: it
 * allocates, and the caller may be an allocator on its way up, which holds its locks
 * (jemalloc reads /proc when it starts).
 */
#include "preload/preload.h"

#include <dlfcn.h>

static uint32_t found;

static long absent(void)
{
	errno = ENOSYS;
	return -1;
}

/* RTLD_NEXT yields the default version of a name that has several. */
static void *look_up(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	return p ? p : (void *)absent;
}

#define STUB(ret, name, params, args)                                                              \
	static ret first_##name params                                                             \
	{                                                                                          \
		return ((ret(*) params)look_up(#name))args;                                        \
	}
PLX_REALS(STUB)
#undef STUB

#define START(ret, name, params, args) .name = first_##name,
struct plx_real plx_real = {PLX_REALS(START)};
#undef START

void plx_real_init(void)
{
	int saved = errno;

	if (plx_load_acq(&found))
		return;
#define FIND(ret, name, params, args) plx_store(&plx_real.name, (ret(*) params)look_up(#name));
	PLX_REALS(FIND)
#undef FIND
	plx_store_rel(&found, 1);
	errno = saved;
}
