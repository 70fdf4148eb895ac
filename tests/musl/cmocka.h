/* SPDX-License-Identifier: MIT */
/*
 * What the native tests use of cmocka, which is a library of glibc's: the same names, for programs
 * that are linked with another libc. A failure ends its test, as there; the others run on.
 */
#ifndef TESTS_MUSL_CMOCKA_H
#define TESTS_MUSL_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*test)(void **state);
	int (*setup)(void **state);
	int (*teardown)(void **state);
};

enum { CMOCKA_PASSED, CMOCKA_FAILED, CMOCKA_SKIPPED };

static jmp_buf cmocka_end;

static inline __attribute__((noreturn)) void cmocka_stop(int how, const char *file, int line,
							 const char *what)
{
	if (how == CMOCKA_FAILED)
		printf("# %s:%d: %s\n", file, line, what);
	longjmp(cmocka_end, how);
}

static inline void cmocka_values(int right, const char *what, uint64_t a, uint64_t b,
				 const char *file, int line)
{
	if (right)
		return;
	printf("# %#llx, %#llx\n", (unsigned long long)a, (unsigned long long)b);
	cmocka_stop(CMOCKA_FAILED, file, line, what);
}

#define CMOCKA_WORD(x) ((uint64_t)(uintptr_t)(x))
#define CMOCKA_COMPARE(a, op, b)                                                                   \
	do {                                                                                       \
		uint64_t cmocka_a = CMOCKA_WORD(a), cmocka_b = CMOCKA_WORD(b);                     \
		cmocka_values(cmocka_a op cmocka_b, #a " " #op " " #b, cmocka_a, cmocka_b,         \
			      __FILE__, __LINE__);                                                 \
	} while (0)

#define assert_int_equal(a, b) CMOCKA_COMPARE(a, ==, b)
#define assert_int_not_equal(a, b) CMOCKA_COMPARE(a, !=, b)
#define assert_ptr_equal(a, b) CMOCKA_COMPARE(a, ==, b)
#define assert_true(x) fail_unless(x, #x)
#define assert_false(x) fail_unless(!(x), "not " #x)
#define assert_null(p) fail_unless(!(p), #p " is NULL")
#define assert_non_null(p) fail_unless((p) != NULL, #p " is not NULL")
#define assert_string_equal(a, b) fail_unless(strcmp(a, b) == 0, #a " is " #b)
#define assert_in_range(value, minimum, maximum)                                                   \
	do {                                                                                       \
		CMOCKA_COMPARE(value, >=, minimum);                                                \
		CMOCKA_COMPARE(value, <=, maximum);                                                \
	} while (0)

#define fail_unless(x, what)                                                                       \
	do {                                                                                       \
		if (!(x))                                                                          \
			cmocka_stop(CMOCKA_FAILED, __FILE__, __LINE__, what);                      \
	} while (0)
#define fail() cmocka_stop(CMOCKA_FAILED, __FILE__, __LINE__, "it fails")
#define fail_msg(...)                                                                              \
	do {                                                                                       \
		printf(__VA_ARGS__);                                                               \
		fail();                                                                            \
	} while (0)
#define skip() cmocka_stop(CMOCKA_SKIPPED, __FILE__, __LINE__, "skipped")
#define print_message(...) printf(__VA_ARGS__)
#define print_error(...) printf(__VA_ARGS__)

#define cmocka_unit_test_teardown(f, teardown)                                                     \
	{                                                                                          \
#f, f, NULL, teardown                                                              \
	}
#define cmocka_unit_test(f) cmocka_unit_test_teardown(f, NULL)
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
	cmocka_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

/* The number of tests that have failed. */
static inline int cmocka_run(const struct CMUnitTest *tests, size_t n, int (*setup)(void **state),
			     int (*teardown)(void **state))
{
	static const char *const words[] = {"ok", "not ok", "ok"};
	volatile int failed = 0;
	void *group = NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (setup && setup(&group)) {
		printf("Bail out! The group cannot be prepared\n");
		return -1;
	}
	printf("1..%zu\n", n);
	for (volatile size_t i = 0; i < n; i++) {
		void *state = group;
		volatile int how = setjmp(cmocka_end);

		if (how == CMOCKA_PASSED)
			tests[i].test(&state);
		if (tests[i].teardown && tests[i].teardown(&state) && how == CMOCKA_PASSED)
			how = CMOCKA_FAILED;
		failed += how == CMOCKA_FAILED;
		printf("%s %zu - %s%s\n", words[how], i + 1, tests[i].name,
		       how == CMOCKA_SKIPPED ? " # SKIP" : "");
	}
	return teardown && teardown(&group) ? -1 : failed;
}

#endif
