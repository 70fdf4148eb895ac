/* SPDX-License-Identifier: MIT */
/* The library says which version it is, in the terms of the headers. */
#include "native.h"

#include <pollux/version.h>

static void test_version(void **state)
{
	(void)state;
	assert_int_equal(pollux_version(), POLLUX_VERSION);
	assert_int_equal(pollux_version() >> 16, POLLUX_VERSION_MAJOR);
	assert_int_equal(pollux_version() >> 8 & 0xff, POLLUX_VERSION_MINOR);
	assert_int_equal(pollux_version() & 0xff, POLLUX_VERSION_PATCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_version)};

	return RUN(tests);
}
