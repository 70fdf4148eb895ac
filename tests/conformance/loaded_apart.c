/* SPDX-License-Identifier: MIT */
/*
 * What is loaded apart from the program (dlmopen, RTLD_DEEPBIND) calls a libc that nobody stands
 * before, and finds the counts of the program's eventfds.
 */
#include "hot.h"

#include <dlfcn.h>

static int ep, fd;

static void holds_five(void)
{
	one_is_hot(&ep, &fd);
	efd_add(fd, 5);
}

/* Each in a child, since it is for good. */
static int with_a_libc_of_its_own(void *unused)
{
	ssize_t (*reads)(int, void *, size_t);
	uint64_t v = 0;
	void *libc;

	(void)unused;
	holds_five();
	libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	if (!libc)
		return EXIT_SKIPPED;
	*(void **)&reads = dlsym(libc, "read");
	return !(reads(fd, &v, sizeof(v)) == sizeof(v) && v == 5);
}

static int bound_to_libc(void *unused)
{
	(void)unused;
	holds_five();
	if (!dlopen("libresolv.so.2", RTLD_NOW | RTLD_DEEPBIND))
		return EXIT_SKIPPED;
	return in_kernel(fd) != 5;
}

/* In the ordinary way nothing ends. */
static int as_ever(void *unused)
{
	(void)unused;
	if (!dlopen("libresolv.so.2", RTLD_NOW))
		return EXIT_SKIPPED;
	holds_five();
	return in_kernel(fd) != (under_pollux() ? 0 : 5);
}

static void assert_finds(int (*fn)(void *))
{
	if (SANITIZED)
		SKIP("the run-time of a sanitizer cannot be loaded twice");
	assert_child(child_status(fn, NULL), "it cannot be loaded here");
}

static void LOAD_in_a_name_space_of_its_own(void **state)
{
	(void)state;
	assert_finds(with_a_libc_of_its_own);
}

static void LOAD_bound_to_its_own_first(void **state)
{
	(void)state;
	assert_finds(bound_to_libc);
}

static void LOAD_as_ever(void **state)
{
	(void)state;
	assert_finds(as_ever);
}

int main(void)
{
	const struct CMUnitTest loaded_apart[] = {
		cmocka_unit_test(LOAD_in_a_name_space_of_its_own),
		cmocka_unit_test(LOAD_bound_to_its_own_first),
		cmocka_unit_test(LOAD_as_ever),
	};

	return run_group(loaded_apart);
}
