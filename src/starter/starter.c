/* SPDX-License-Identifier: MIT */
/*
 * The library for programs that only start others: preload/needless.c says which, and why.
 *
 * In place of the drop-in it stands before the functions that execute a program, so that this one
 * gets what it has use for, and does nothing else: no object is served here, and none is inherited.
 *
 *   fork    parent and children remember the same verdicts
 *   prctl   after a seccomp filter nothing is judged
 */
#include "preload/preload.h"

#include <string.h>
#include <unistd.h>

static const char preload_is[] PLX_START_CONST = "LD_PRELOAD=";
static const char dropin_is[] PLX_START_CONST = "preload.so";
static const char starter_is[] PLX_START_CONST = "starter.so";
#define KIND_LEN (sizeof(dropin_is) - 1)

/* The drop-in's path. */
static char dropin[PLX_PRELOAD_MAX];

/* The drop-in's name takes the place of this library's in the environment. */
static PLX_START_CODE void put_back(char *list, const char *own, size_t len)
{
	while (*list) {
		size_t entry = strcspn(list, " :");

		if (entry == len && memcmp(list, own, len) == 0)
			memcpy(list + len - KIND_LEN, dropin_is, KIND_LEN);
		list += entry;
		list += *list != 0;
	}
}

/*
 * Linked to run before the constructors of all other libraries, which may look at the environment
 * or start programs; libc's, which sets environ, is one of them.
 */
__attribute__((constructor)) static PLX_START_CODE void starter_start(int argc, char **argv,
								      char **envp)
{
	const char *own = plx_real_learn();
	size_t len = own ? strlen(own) : 0;

	(void)argc;
	(void)argv;
	if (len < KIND_LEN || len >= sizeof(dropin) ||
	    memcmp(own + len - KIND_LEN, starter_is, KIND_LEN) != 0)
		return;
	memcpy(dropin, own, len);
	memcpy(dropin + len - KIND_LEN, dropin_is, KIND_LEN);
	plx_needless_begin(dropin);
	for (char **e = envp; e && *e; e++)
		if (strncmp(*e, preload_is, sizeof(preload_is) - 1) == 0)
			put_back(*e + sizeof(preload_is) - 1, own, len);
}

void plx_sandbox(unsigned long mode, const void *filter)
{
	if (plx_confines(mode, filter))
		plx_needless_never();
}

PLX_EXPORT PLX_CHILD_CODE pid_t fork(void)
{
	plx_needless_before_fork();
	return plx_real.fork();
}
pid_t __fork(void);
PLX_ALIAS(__fork, fork);
