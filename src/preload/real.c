/* SPDX-License-Identifier: MIT */
/*
 * Finding the real functions.
 */
#include "preload/preload.h"

#include <dlfcn.h>

/* The lookup itself may come back to us: an allocator that starts inside dlsym, say. */
static __thread bool looking;
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
		if (looking)                                                                       \
			return ((ret(*) params)look_up(#name))args;                                \
		plx_real_init();                                                                   \
		return plx_real.name args;                                                         \
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
	looking = true;
#define FIND(ret, name, params, args) plx_store(&plx_real.name, (ret(*) params)look_up(#name));
	PLX_REALS(FIND)
#undef FIND
	looking = false;
	plx_store_rel(&found, 1);
	errno = saved;
}
