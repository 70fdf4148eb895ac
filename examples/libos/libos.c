/* SPDX-License-Identifier: MIT */
/*
 * libos [STEPS [SEED]]             the library OS and the kernel make the same calls
 * libos measure [SECONDS [IDLE]]   how long calls take: the library OS, the kernel, a naive epoll;
 *                                  seconds for each number, and the greatest number of idle files
 *
 * With LIBOS_TRACE in the environment the first prints every call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

int main(int argc, char **argv)
{
	uint64_t steps = 100000, seed = 1;

	if (argc > 1 && !strcmp(argv[1], "measure"))
		return measure(argc > 2 ? strtod(argv[2], NULL) : 0.05,
			       argc > 3 ? atoi(argv[3]) : 100000);
	if (argc > 1)
		steps = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 0);
	return compare(steps, seed);
}
