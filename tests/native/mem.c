/* SPDX-License-Identifier: MIT */
/*
 * The libraries' own memory: whole, aligned, zeroed, nobody else's.
 */
#include "native.h"

#include "base/mem.h"

#define OBJECTS 400
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* It is their allocator, and they take their time. */
#define ROUNDS 400
#else
#define ROUNDS 4000
#endif
#define THREADS 4

static const size_t sizes[] = {1,    64,   65,	 100,  128,  200,   256,   300,	  512,	 1000,
			       1024, 2048, 4000, 8192, 8193, 32704, 32705, 65472, 65536, 300000};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* True if all n bytes are c; they are d afterwards. */
static bool all_bytes(unsigned char *p, size_t n, unsigned char c, unsigned char d)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != c)
			return false;
	memset(p, d, n);
	return true;
}

/* Each object keeps its own byte while others come and go; a failure is told by *bad. */
static void churn(uint32_t seed, unsigned char mine, int *bad)
{
	struct {
		unsigned char *p;
		size_t n;
	} o[OBJECTS] = {{0}};
	uint32_t r = seed;

	for (int k = 0; k < ROUNDS && !__atomic_load_n(bad, __ATOMIC_RELAXED); k++) {
		int i = rnd(&r) % OBJECTS;

		if (o[i].p) {
			if (!all_bytes(o[i].p, o[i].n, mine, 0xff))
				__atomic_store_n(bad, 1, __ATOMIC_RELAXED);
			plx_free(o[i].p);
		}
		/* The large ones cost a while. */
		o[i].n = sizes[rnd(&r) % (rnd(&r) % 20 ? 12 : SIZES)];
		o[i].p = plx_zalloc(o[i].n);
		if (!o[i].p || (uintptr_t)o[i].p % 64 || !all_bytes(o[i].p, o[i].n, 0, mine))
			__atomic_store_n(bad, 1, __ATOMIC_RELAXED);
	}
	for (int i = 0; i < OBJECTS; i++)
		plx_free(o[i].p);
}

static void objects_are_whole(void **state)
{
	int bad = 0;

	(void)state;
	churn(1, 'a', &bad);
	assert_false(bad);
}

static void churner(struct thread *t)
{
	for (int i = 0; i < 3; i++)
		churn((uint32_t)t->tid + i, (unsigned char)t->tid, t->arg);
}

static void threads_do_not_meet(void **state)
{
	struct thread t[THREADS];
	int bad = 0;

	(void)state;
	for (int i = 0; i < THREADS; i++)
		thread_start(&t[i], churner, &bad);
	for (int i = 0; i < THREADS; i++)
		thread_join(&t[i]);
	assert_false(bad);
}

/* What was freed is used again: no more address space than the first time. */
static void memory_is_used_again(void **state)
{
	static void *p[2000];
	uintptr_t top = 0, again = 0;

	(void)state;
	not_of_a_sanitizer();
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 2000; i++) {
			p[i] = plx_zalloc(500);
			assert_non_null(p[i]);
			again = (uintptr_t)p[i] > again ? (uintptr_t)p[i] : again;
		}
		for (int i = 0; i < 2000; i++)
			plx_free(p[i]);
		if (round == 0)
			top = again;
	}
	assert_true(again <= top);
}

static void too_much_is_refused(void **state)
{
	(void)state;
	not_of_a_sanitizer();
	assert_null(plx_zalloc((size_t)1 << 62));
	assert_null(plx_mem_get(SIZE_MAX));
	assert_null(plx_mem_get(SIZE_MAX - 100));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(objects_are_whole),
		TEST(threads_do_not_meet),
		TEST(memory_is_used_again),
		TEST(too_much_is_refused),
	};

	return RUN(tests);
}
