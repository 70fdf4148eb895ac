/* SPDX-License-Identifier: MIT */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

static void *mem_zalloc(size_t size)
{
	void *p;

	if (size < PLX_MEM_LINES)
		return calloc(1, size);
	p = aligned_alloc(64, (size + 63) & ~(size_t)63);
	if (p)
		memset(p, 0, size);
	return p;
}

#if PLX_FAULTS
static long fail_after = -1;
static long live;
static long calls;

static bool mem_fault(void)
{
	long n = plx_load(&fail_after);

	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	if (n < 0)
		return false;
	plx_store(&fail_after, n - 1);
	return n == 0;
}

void *plx_zalloc(size_t size)
{
	void *p = mem_fault() ? NULL : mem_zalloc(size);

	if (p)
		__atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
	return p;
}

void plx_free(void *p)
{
	if (p)
		__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	free(p);
}

void plx_mem_fail_after(long n)
{
	plx_store(&fail_after, n);
}

long plx_mem_live(void)
{
	return plx_load(&live);
}

long plx_mem_calls(void)
{
	return plx_load(&calls);
}
#else
void *plx_zalloc(size_t size)
{
	return mem_zalloc(size);
}

void plx_free(void *p)
{
	free(p);
}

void plx_mem_fail_after(long n)
{
	(void)n;
}

long plx_mem_live(void)
{
	return 0;
}

long plx_mem_calls(void)
{
	return 0;
}
#endif
