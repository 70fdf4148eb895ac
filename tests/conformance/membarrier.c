/* SPDX-License-Identifier: MIT */
/*
 * membarrier belongs to the program: without a registration of its own it is refused. No rule says
 * so. (What has been made by the time is ours to register for, compatibility.md.)
 */
#include "waiting.h"

#include <linux/membarrier.h>

static void MEMBARRIER_is_refused_without_a_registration(void **state)
{
	(void)state;
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) <= 0)
		SKIP("the kernel has no membarrier");
	assert_errno(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), EPERM);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(MEMBARRIER_is_refused_without_a_registration),
	};

	return run_group(tests);
}
