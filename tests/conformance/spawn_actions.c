/* SPDX-License-Identifier: MIT */
/*
 * A started program gets what the file actions of posix_spawn name, with the count that it has
 * then; what they do not name stays as it is here. No rule says so.
 */
#include "waiting.h"

#include <limits.h>
#include <spawn.h>
#include <string.h>

extern char **environ;

static char self[PATH_MAX];

/* The started program: what it finds at 0 is a count, or tells one. */
static int child(const char *how)
{
	char text[512] = {0}, *at;
	uint64_t v;

	if (strcmp(how, "--count") == 0)
		return read(0, &v, sizeof(v)) == sizeof(v) ? (int)v : 99;
	if (read(0, text, sizeof(text) - 1) <= 0)
		return 98;
	at = strstr(text, "eventfd-count:");
	return at ? (int)strtol(at + strlen("eventfd-count:"), NULL, 16) : 97;
}

static int started(posix_spawn_file_actions_t *fa, const char *how)
{
	char *argv[] = {self, (char *)how, NULL};
	pid_t pid;

	assert_int_equal(posix_spawn(&pid, self, fa, NULL, argv, environ), 0);
	return child_end(pid);
}

static void EFD_19_a_duplicate_of_file_actions(void **state)
{
	posix_spawn_file_actions_t fa;
	uint64_t v;
	int fd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC),
	    other = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	efd_add(fd, 3);
	efd_add(other, 5);
	posix_spawn_file_actions_init(&fa);
	assert_int_equal(posix_spawn_file_actions_adddup2(&fa, fd, 0), 0);
	assert_int_equal(started(&fa, "--count"), 3);
	posix_spawn_file_actions_destroy(&fa);
	/* The child has read it. */
	assert_errno(read(fd, &v, sizeof(v)), EAGAIN);
	assert_int_equal(efd_take(other), 5);
	close(fd);
	close(other);
}

static void EFD_19_the_number_was_named_before_it_was_an_eventfd(void **state)
{
	posix_spawn_file_actions_t fa;
	uint64_t v;
	int fd = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));

	(void)state;
	posix_spawn_file_actions_init(&fa);
	assert_int_equal(posix_spawn_file_actions_adddup2(&fa, fd, 0), 0);
	close(fd);
	assert_int_equal(efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC), fd);
	efd_add(fd, 4);
	assert_int_equal(started(&fa, "--count"), 4);
	assert_errno(read(fd, &v, sizeof(v)), EAGAIN);
	posix_spawn_file_actions_destroy(&fa);
	close(fd);
}

static void EFD_19_a_file_that_file_actions_open(void **state)
{
	posix_spawn_file_actions_t fa;
	int fd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
	char path[64];

	(void)state;
	efd_add(fd, 6);
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)getpid(), fd);
	posix_spawn_file_actions_init(&fa);
	assert_int_equal(posix_spawn_file_actions_addopen(&fa, 0, path, O_RDONLY, 0), 0);
	assert_int_equal(started(&fa, "--fdinfo"), 6);
	posix_spawn_file_actions_destroy(&fa);
	assert_int_equal(efd_take(fd), 6);
	close(fd);
}

static void SPAWN_what_is_not_named_stays_cached(void **state)
{
	posix_spawn_file_actions_t fa;
	int fd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC), ep = ep_new(), null;

	(void)state;
	ep_add(ep, fd, EPOLLIN, 7);
	efd_add(fd, 3);
	null = (int)assert_ok(open("/dev/null", O_RDWR | O_CLOEXEC));
	posix_spawn_file_actions_init(&fa);
	assert_int_equal(posix_spawn_file_actions_adddup2(&fa, null, 0), 0);
	assert_int_equal(posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0), 0);
	assert_int_equal(posix_spawn_file_actions_addclose(&fa, 2), 0);
	assert_int_equal(started(&fa, "--count"), 99);
	posix_spawn_file_actions_destroy(&fa);
	assert_int_equal(fd_served(fd), under_pollux());
	assert_true(ep_one(ep, EPOLLIN, 7));
	assert_int_equal(efd_take(fd), 3);
	close(fd);
	close(ep);
	close(null);
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const struct CMUnitTest tests[] = {
		/* First: no number has been named so far. */
		cmocka_unit_test(SPAWN_what_is_not_named_stays_cached),
		cmocka_unit_test(EFD_19_a_duplicate_of_file_actions),
		cmocka_unit_test(EFD_19_the_number_was_named_before_it_was_an_eventfd),
		cmocka_unit_test(EFD_19_a_file_that_file_actions_open),
	};

	if (n <= 0)
		return 1;
	if (argc > 1 && strncmp(argv[1], "--", 2) == 0)
		return child(argv[1]);
	return run_group(tests);
}
