/* SPDX-License-Identifier: MIT */
/*
 * Rings made after a fork are their process's own: neither the child nor the parent finds the
 * other's completions in any memory that it shares. Only rings that were there when the child was
 * made are shared with it, and their memory never becomes another ring's.
 */
#include "aio.h"

#include <sys/uio.h>

#define RINGS 24

/* What one process looks for in its memory, and the other puts into its rings. */
struct secret {
	int from[2], to[2];
	int fd;
};

static void secret_new(struct secret *s)
{
	aio_pipe(s->from, 0);
	aio_pipe(s->to, 0);
	s->fd = file_in_memory(8);
}

static void secret_end(struct secret *s)
{
	for (int i = 0; i < 2; i++) {
		close(s->from[i]);
		close(s->to[i]);
	}
	close(s->fd);
}

/* Fresh, and nowhere but in the caller's registers and stack. */
static uint64_t mark_new(void)
{
	uint64_t mark = 0;

	while (mark == 0)
		if (syscall(SYS_getrandom, &mark, sizeof(mark), 0) != sizeof(mark))
			return 0;
	return mark;
}

/* Contexts with a completion each, that carries the mark; some have become the kernel's. */
static bool rings_fill(aio_context_t *ctx, int n, const struct secret *s, uint64_t mark)
{
	char buf[8];

	for (int i = 0; i < n; i++) {
		struct iocb cb, poll, *list[] = {&cb, &poll};

		ctx[i] = 0;
		aio_pread(&cb, s->fd, buf, 8, 0)->aio_data = mark;
		/* It waits for what never comes. */
		aio_poll(&poll, s->to[0], POLLPRI)->aio_data = mark;
		if (aio_setup_in_turn(4, &ctx[i]) == -1 ||
		    aio_submit(ctx[i], 1 + (i % 3 == 2), list) < 1 ||
		    ring_of(ctx[i])->ev[0].data != mark)
			return false;
	}
	return true;
}

static bool rings_end(const aio_context_t *ctx, int n)
{
	for (int i = 0; i < n; i++)
		if (aio_destroy(ctx[i]) == -1)
			return false;
	return true;
}

/* Whether the mark stands in this memory. What is not there, as behind the end of a file, is not.
 */
static bool part_has(uintptr_t from, uintptr_t to, uint64_t mark)
{
	static uint64_t page[4096 / sizeof(uint64_t)];
	struct iovec here = {page, sizeof(page)};

	for (; from < to; from += sizeof(page)) {
		struct iovec there = {(void *)from, sizeof(page)};

		if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != sizeof(page))
			continue;
		for (size_t i = 0; i < sizeof(page) / sizeof(*page); i++)
			if (page[i] == mark)
				return true;
	}
	return false;
}

/* In the memory that the caller shares with others; -1 if that cannot be said. */
static int shared_has(uint64_t mark)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4352], rights[5] = "";
	unsigned long from, to;
	int found = 0;

	if (f == NULL)
		return -1;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && rights[0] == 'r' &&
		    rights[3] == 's' && part_has(from, to, mark))
			found = 1;
	fclose(f);
	return found;
}

/* Says "found" for a mark that it is told, until there is no more. */
static int looks_for_marks(void *arg)
{
	struct secret *s = arg;
	uint64_t mark;

	close(s->to[1]);
	while (read(s->to[0], &mark, sizeof(mark)) == sizeof(mark)) {
		int found = shared_has(mark);

		if (write(s->from[1], &found, sizeof(found)) != sizeof(found))
			return 1;
	}
	return 0;
}

static int other_finds(const struct secret *s, uint64_t mark)
{
	int found = -1;

	assert_int_equal(write(s->to[1], &mark, sizeof(mark)), sizeof(mark));
	assert_int_equal(read(s->from[0], &found, sizeof(found)), sizeof(found));
	return found;
}

/* Makes rings, in which the child finds nothing. */
static void rings_are_hidden(const struct secret *s)
{
	aio_context_t ctx[RINGS];
	uint64_t mark = mark_new();

	assert_true(mark != 0);
	assert_true(rings_fill(ctx, RINGS, s, mark));
	assert_int_equal(other_finds(s, mark), 0);
	assert_true(rings_end(ctx, RINGS));
}

static pid_t by_fork(void)
{
	return fork();
}

/* As code does that knows of no fork handlers. */
static pid_t by_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void parents_rings(pid_t (*make)(void))
{
	aio_context_t old[RINGS], buffered;
	uint64_t mark = mark_new(), other = mark_new();
	struct secret s;
	pid_t pid;

	secret_new(&s);
	assert_true(rings_fill(old, RINGS, &s, mark));
	assert_true(rings_fill(&buffered, 1, &s, other));
	pid = make();
	if (pid == 0) {
		alarm(SOON_MS / 1000);
		_exit(looks_for_marks(&s));
	}
	assert_true(pid > 0);
	/* Those that were there are shared: so the child's search is seen to find what there is. */
	assert_int_equal(other_finds(&s, mark), 1);
	assert_int_equal(other_finds(&s, other), 1);
	assert_true(rings_end(&buffered, 1));
	rings_are_hidden(&s);
	/* Nor in the memory of those that it has seen. */
	assert_true(rings_end(old, RINGS));
	for (int i = 0; i < 4; i++)
		rings_are_hidden(&s);
	close(s.to[1]);
	s.to[1] = -1;
	assert_int_equal(child_end(pid), 0);
	secret_end(&s);
}

static void AIO_RING_10_the_child_sees_none_of_later_rings(void **state)
{
	(void)state;
	parents_rings(by_fork);
}

static void AIO_RING_10_nor_does_the_child_of_a_clone(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer does not know of such children");
	parents_rings(by_clone);
}

/* In the child: rings of its own, whose mark it tells. */
static int makes_rings(void *arg)
{
	struct secret *s = arg;
	aio_context_t ctx[RINGS];
	uint64_t mark;
	char c;

	for (int i = 0; i < 3; i++) {
		mark = mark_new();
		if (!rings_fill(ctx, RINGS, s, mark) ||
		    write(s->from[1], &mark, sizeof(mark)) != sizeof(mark) ||
		    read(s->to[0], &c, 1) != 1 || !rings_end(ctx, RINGS))
			return 1;
	}
	return 0;
}

static void AIO_RING_10_the_parent_sees_none_of_the_childs(void **state)
{
	aio_context_t old[RINGS], later[RINGS];
	uint64_t mark = 0;
	struct secret s;
	pid_t pid;

	(void)state;
	secret_new(&s);
	/* Half of them are gone before. */
	assert_true(rings_fill(old, RINGS, &s, mark_new()));
	assert_true(rings_end(old, RINGS / 2));
	pid = child_start(makes_rings, &s);
	assert_true(rings_fill(later, RINGS, &s, mark_new()));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(read(s.from[0], &mark, sizeof(mark)), sizeof(mark));
		assert_int_equal(shared_has(mark), 0);
		assert_int_equal(write(s.to[1], "x", 1), 1);
	}
	assert_int_equal(child_end(pid), 0);
	assert_true(rings_end(old + RINGS / 2, RINGS / 2));
	assert_true(rings_end(later, RINGS));
	secret_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_RING_10_the_child_sees_none_of_later_rings),
		cmocka_unit_test(AIO_RING_10_nor_does_the_child_of_a_clone),
		cmocka_unit_test(AIO_RING_10_the_parent_sees_none_of_the_childs),
	};

	return run_group(tests);
}
