/* SPDX-License-Identifier: MIT */
/*
 * A fork needs no descriptor and next to no memory, however many objects there are: it works, and
 * both sides go on with all counts and registrations, where the limits have been reached.
 */
#include "waiting.h"

#include <sys/resource.h>

/* More than one page has room for, if a library wanted to note each. */
#define MANY 600
#define LOWERED 20

static int fd[MANY], ep;

/* In a child, since the limits stay: an eventfd i holds i, and the odd ones are watched. */
static void make_many(void)
{
	struct rlimit lim = {.rlim_cur = MANY + 200, .rlim_max = MANY + 200};

	child_check(close_range(3, ~0u, 0) == 0);
	child_check(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	ep = epoll_create1(0);
	child_check(ep != -1);
	for (int i = 0; i < MANY; i++) {
		fd[i] = eventfd((unsigned int)i, EFD_NONBLOCK);
		child_check(fd[i] != -1);
		child_check(!(i % 2) || ep_ctl(ep, EPOLL_CTL_ADD, fd[i], EPOLLIN, i) == 0);
	}
}

/* Level-triggered: each is there as often as it is looked for. */
static void all_there(void)
{
	static struct epoll_event ev[MANY];
	uint64_t sum = 0, want = 0;
	int n = epoll_wait(ep, ev, MANY, 0);

	child_check(n == MANY / 2);
	for (int i = 0; i < n; i++) {
		sum += ev[i].data.u64;
		want += 2 * (uint64_t)i + 1;
	}
	child_check(sum == want);
}

static void forks(void)
{
	pid_t pid = fork();
	uint64_t v;

	child_check(pid != -1);
	if (pid == 0) {
		all_there();
		for (int i = 1; i < MANY; i++)
			child_check(read(fd[i], &v, sizeof(v)) == sizeof(v) && v == (uint64_t)i);
		v = 7;
		child_check(write(fd[1], &v, sizeof(v)) == sizeof(v));
		_exit(0);
	}
	child_passes(pid);
	child_check(epoll_wait(ep, &(struct epoll_event){0}, 1, 0) == 1);
	child_check(read(fd[1], &v, sizeof(v)) == sizeof(v) && v == 7);
	child_check(read(fd[0], &v, sizeof(v)) == -1 && errno == EAGAIN);
}

static int with_no_address_space(void *unused)
{
	struct rlimit lim;
	long pages = 0;
	FILE *f;

	(void)unused;
	make_many();
	f = fopen("/proc/self/statm", "re");
	child_check(f && fscanf(f, "%ld", &pages) == 1);
	fclose(f);
	lim.rlim_cur = lim.rlim_max = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
	child_check(setrlimit(RLIMIT_AS, &lim) == 0);
	forks();
	return 0;
}

static void ESCAPE_fork_with_no_address_space_left(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer needs address space");
	assert_int_equal(child_status(with_no_address_space, NULL), 0);
}

static int with_no_descriptor(void *unused)
{
	(void)unused;
	make_many();
	while (dup(STDERR_FILENO) != -1)
		;
	child_check(errno == EMFILE);
	forks();
	child_check(dup(STDERR_FILENO) == -1 && errno == EMFILE);
	return 0;
}

static void ESCAPE_fork_with_no_descriptor_left(void **state)
{
	(void)state;
	assert_int_equal(child_status(with_no_descriptor, NULL), 0);
}

/* By a process that is older than the objects. */
static int with_a_limit_lowered_by_another(void *unused)
{
	const struct rlimit low = {.rlim_cur = LOWERED, .rlim_max = LOWERED};
	pid_t me = getpid(), pid;
	int p[2];
	char c;

	(void)unused;
	child_check(close_range(3, ~0u, 0) == 0 && pipe(p) == 0);
	/* Out of reach of make_many, which closes what is above 2. */
	child_check(dup2(p[0], 0) == 0 && dup2(p[1], 1) == 1);
	pid = fork();
	child_check(pid != -1);
	if (pid == 0) {
		close(p[1]);
		close(1);
		_exit(read(0, &c, 1) == 0 && prlimit(me, RLIMIT_NOFILE, &low, NULL) == 0 ? 0 : 1);
	}
	make_many();
	close(1);
	child_passes(pid);
	forks();
	return 0;
}

static void ESCAPE_fork_with_a_limit_lowered_by_another_process(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("a leak checker needs descriptors");
	assert_int_equal(child_status(with_a_limit_lowered_by_another, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_fork_with_no_address_space_left),
		cmocka_unit_test(ESCAPE_fork_with_no_descriptor_left),
		cmocka_unit_test(ESCAPE_fork_with_a_limit_lowered_by_another_process),
	};

	return run_group(tests);
}
