/* SPDX-License-Identifier: MIT */
/* What a program finds when its main begins, whoever has run before it. No rule says so. */
#include "waiting.h"

static int errno_at_start;

static void START_errno_is_zero(void **state)
{
	(void)state;
	assert_int_equal(errno_at_start, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(START_errno_is_zero),
	};

	errno_at_start = errno;
	return run_group(tests);
}
