/* SPDX-License-Identifier: MIT */
/*
 * Programs that were built with AddressSanitizer.
 *
 *   __asan_default_options   its run-time insists on being the first library of the process, and
 *                            the one that is preloaded is; the calls reach both, so it need not.
 *                            A program that has this function itself is asked instead of us, and
 *                            ASAN_OPTIONS has the last word.
 *   pthread_create           a thread that is cancelled leaves the marks of its frames on the
 *                            stack. Nothing minds, unless functions that the run-time looks after
 *                            have variables on the same place later, as destructors at the
 *                            thread's end may, and the run-time would end the program for them. So
 *                            the marks are taken away before.
 *   __asan_handle_no_return  where a frame of the program is left, the run-time unmarks the stack
 *                            from there up, by a function that it looks after as well. The marks
 *                            of our frames below must not be there: those of a build of ours for
 *                            AddressSanitizer, no other has any.
 *
 * For ThreadSanitizer see base/sanitizer.h.
 */
#include "preload/preload.h"

#include <pthread.h>
#include <stdlib.h>

__attribute__((weak, visibility("default"))) void
__asan_unpoison_memory_region(void const volatile *addr, size_t size);

const char *__asan_default_options(void);
/* Called before anything of the program has run, the run-time's own memory included. */
PLX_EXPORT __attribute__((no_sanitize("address", "thread", "undefined"))) const char *
__asan_default_options(void)
{
	return "verify_asan_link_order=0";
}

struct beginning {
	void *(*fn)(void *);
	void *arg;
};

/* After the last frame of the program: all that is marked below is nobody's any more. */
static void unmark(void *unused)
{
	char *here = __builtin_frame_address(0);
	pthread_attr_t attr;
	size_t size;
	void *low;

	(void)unused;
	if (pthread_getattr_np(pthread_self(), &attr))
		return;
	if (pthread_attr_getstack(&attr, &low, &size) == 0 && here > (char *)low &&
	    here < (char *)low + size)
		__asan_unpoison_memory_region(low, here - (char *)low);
	pthread_attr_destroy(&attr);
}

static void *begin(void *p)
{
	struct beginning b = *(struct beginning *)p;
	void *r;

	free(p);
	pthread_cleanup_push(unmark, NULL);
	r = b.fn(b.arg);
	pthread_cleanup_pop(0);
	return r;
}

PLX_EXPORT int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *),
			      void *arg)
{
	struct beginning *b;
	int r;

	if (!__asan_unpoison_memory_region)
		return plx_real.pthread_create(t, attr, fn, arg);
	b = malloc(sizeof(*b));
	if (!b)
		return EAGAIN;
	*b = (struct beginning){.fn = fn, .arg = arg};
	r = plx_real.pthread_create(t, attr, begin, b);
	if (r)
		free(b);
	return r;
}

#ifdef __SANITIZE_ADDRESS__

/* More than the frames have that the run-time needs for it. */
#define BELOW 4096

/* All that is below its caller's frame is nobody's any more, or its own. */
PLX_EXPORT __attribute__((no_sanitize("address", "undefined"))) void __asan_handle_no_return(void)
{
	char *here = __builtin_frame_address(0);

	__asan_unpoison_memory_region(here - BELOW, BELOW);
	plx_real.__asan_handle_no_return();
}

#endif
