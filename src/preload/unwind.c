/* SPDX-License-Identifier: MIT */
/*
 * What the compiler refers to where a cancelled call is cleaned up after. libgcc_s has it. If we
 * needed that library it would be loaded into every program, at a third of the cost of our
 * start and 100 KB resident; the C library loads it when a thread is cancelled or ends by
 * pthread_exit, and that is soon enough. So these two pass on to it.
 *
 * Not by unwind.h, whose declarations say that they are exported. A run-time of a sanitizer has
 * libgcc_s itself, and unwinds through its own idea of the stack: nothing stands between there.
 */
#include "preload/preload.h"

#include <dlfcn.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)

void plx_unwind_find(void)
{
}

#else

typedef int personality_fn(int version, int actions, uint64_t class, void *exception,
			   void *context);
typedef void resume_fn(void *exception);

personality_fn __gcc_personality_v0;
resume_fn _Unwind_Resume;

static personality_fn *personality;
static resume_fn *resume;

void plx_unwind_find(void)
{
	void *lib, *p, *r;

	if (plx_load_acq(&resume))
		return;
	lib = dlopen("libgcc_s.so.1", RTLD_NOW);
	p = lib ? dlsym(lib, "__gcc_personality_v0") : NULL;
	r = lib ? dlsym(lib, "_Unwind_Resume") : NULL;
	/* As the C library does: without it there is no cancellation. */
	if (!p || !r)
		abort();
	plx_store(&personality, (personality_fn *)p);
	plx_store_rel(&resume, (resume_fn *)r);
}

int __gcc_personality_v0(int version, int actions, uint64_t class, void *exception, void *context)
{
	plx_unwind_find();
	return personality(version, actions, class, exception, context);
}

void _Unwind_Resume(void *exception)
{
	plx_unwind_find();
	resume(exception);
	abort();
}

#endif
