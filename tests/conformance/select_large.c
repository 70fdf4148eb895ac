/* SPDX-License-Identifier: MIT */
/*
 * A select of more numbers than there are: the kernel looks at none behind the end of its table of
 * descriptors, so a program may say far more than its sets have room for (select(2), BUGS), as by
 * select(getdtablesize(), ...). What lies behind the sets is neither read nor written.
 */
#include "waiting.h"

struct way {
	/* The ready one. */
	enum kind kind;
	bool raw, sleeps;
};

/* What a program has behind a set. */
struct behind {
	fd_set set;
	unsigned char rest[65536];
};

static int call(const struct way *w, int n, fd_set *in)
{
	struct timespec ts = {.tv_sec = w->sleeps ? 5 : 0};

	if (w->raw)
		return (int)syscall(SYS_pselect6, n, in, NULL, NULL, &ts, NULL);
	return pselect(n, in, NULL, NULL, &ts, NULL);
}

static const int numbers[] = {FD_SETSIZE, 20000, 1 << 16, 1 << 20, INT_MAX};

static void select_reads_nothing_behind_its_sets(void **state)
{
	const struct way *w = *state;
	struct subject idle = subject_new(KIND_EVENTFD), s = subject_ready(w->kind);
	static struct behind b;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		FD_ZERO(&b.set);
		memset(b.rest, 0xff, sizeof(b.rest));
		FD_SET(idle.fd, &b.set);
		FD_SET(s.fd, &b.set);
		assert_int_equal(call(w, numbers[i], &b.set), 1);
		assert_true(FD_ISSET(s.fd, &b.set));
		assert_false(FD_ISSET(idle.fd, &b.set));
		for (size_t k = 0; k < sizeof(b.rest); k++)
			assert_int_equal(b.rest[k], 0xff);
	}
	subject_close(&s);
	subject_close(&idle);
}

/* It ends at the end of the memory. */
static void select_needs_no_memory_behind_its_sets(void **state)
{
	const struct way *w = *state;
	struct subject idle = subject_new(KIND_EVENTFD), s = subject_ready(w->kind);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd_set *in = (fd_set *)(memory + page - sizeof(fd_set));

	assert_true(memory != MAP_FAILED);
	assert_ok(munmap(memory + page, page));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		FD_ZERO(in);
		FD_SET(idle.fd, in);
		FD_SET(s.fd, in);
		assert_int_equal(call(w, numbers[i], in), 1);
		assert_true(FD_ISSET(s.fd, in));
		assert_false(FD_ISSET(idle.fd, in));
	}
	assert_ok(munmap(memory, page));
	subject_close(&s);
	subject_close(&idle);
}

int main(void)
{
	static const struct way way[] = {
		{.kind = KIND_EVENTFD},
		{.kind = KIND_PIPE},
		{.kind = KIND_EVENTFD, .sleeps = true},
		{.kind = KIND_EVENTFD, .raw = true},
		{.kind = KIND_PIPE, .raw = true, .sleeps = true},
	};
#define READS(suffix, i) VARIANT(select_reads_nothing_behind_its_sets, suffix, &way[i])
#define NEEDS(suffix, i) VARIANT(select_needs_no_memory_behind_its_sets, suffix, &way[i])
	static const struct CMUnitTest tests[] = {
		READS("", 0),
		READS("_of_the_kernel", 1),
		READS("_that_may_sleep", 2),
		READS("_raw", 3),
		READS("_raw_of_the_kernel", 4),
		NEEDS("", 0),
		NEEDS("_of_the_kernel", 1),
		NEEDS("_that_may_sleep", 2),
		NEEDS("_raw", 3),
		NEEDS("_raw_of_the_kernel", 4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
