/* SPDX-License-Identifier: MIT */
/*
 * cmocka and what it has to come after. From version 2 on its checks of ranges are named after the
 * type of their values and the old name is deprecated; the tests use the new one, for the old
 * name compared as unsigned numbers, too.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifndef assert_uint_in_range
#define assert_uint_in_range(value, minimum, maximum) assert_in_range(value, minimum, maximum)
#endif

#endif
