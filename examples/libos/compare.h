/* SPDX-License-Identifier: MIT */
#ifndef LIBOS_COMPARE_H
#define LIBOS_COMPARE_H

#include <stdint.h>

/* Random calls, each made to the library OS and to the kernel. 0 if all results were the same. */
int compare(uint64_t steps, uint64_t seed);

/* seconds: for each number. idle: the greatest number of idle files. Ends if something fails. */
int measure(double seconds, int idle);

#endif
