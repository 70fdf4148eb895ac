/* SPDX-License-Identifier: MIT */
/*
 * Faults on purpose, to see that the tests find them. PLX_INJECTED(fault) is true now and
 * then in a build with -Dinject=FAULT, and never otherwise; -Dinject=any takes the fault
 * from POLLUX_INJECT, as FAULT or FAULT:N for one time in N.
 */
#ifndef PLX_BASE_INJECT_H
#define PLX_BASE_INJECT_H

#include <stdbool.h>

#ifdef PLX_INJECT
bool plx_inject(const char *fault);
#define PLX_INJECTED(fault) plx_inject(#fault)
#else
#define PLX_INJECTED(fault) false
#endif

#endif
