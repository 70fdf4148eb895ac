/* SPDX-License-Identifier: MIT */
/*
 * What a new program inherits has all that was written to it, and what is written later, whatever
 * other threads make, write to and set to be inherited while the program starts.
 *
 * The program is its own child: with a first argument that begins with "--" it looks at what it has
 * inherited.
 */
#include "waiting.h"

#include <spawn.h>
#include <sys/mman.h>

#define ROUNDS 60
#define MADE 24
#define WRITES 100

struct shared {
	volatile int started, over;
	/* Of the maker, who may be ended between a write and its count. */
	volatile int n;
	struct {
		volatile int fd;
		volatile uint64_t written;
	} made[MADE];
};

static struct shared *shared;
static int memory;
static char self[4096], number[16];

/* ---- the new program ---- */

static int looks(int fd, bool waits)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int wrong = 0;

	if (s == MAP_FAILED)
		return 2;
	s->started = 1;
	while (waits && !s->over)
		sched_yield();
	for (int i = 0; i < s->n; i++) {
		uint64_t v = 0, n = s->made[i].written;

		if (fcntl(s->made[i].fd, F_GETFD) < 0)
			continue;
		if (read(s->made[i].fd, &v, sizeof(v)) < 0)
			v = 0;
		if (v != n && (waits || v != n + 1))
			wrong = 3;
	}
	return wrong;
}

/* ---- the thread beside ---- */

static void write_some(int i, int n)
{
	const uint64_t one = 1;

	while (n-- && write(shared->made[i].fd, &one, sizeof(one)) == sizeof(one))
		shared->made[i].written++;
}

static void *makes(void *sets)
{
	for (int i = 0; i < MADE && !shared->started; i++) {
		int fd = eventfd(0, EFD_NONBLOCK | (sets ? EFD_CLOEXEC : 0));

		shared->made[i].written = 0;
		shared->made[i].fd = fd;
		shared->n = i + 1;
		write_some(i, WRITES);
		if (sets)
			fcntl(fd, F_SETFD, 0);
		write_some(i, WRITES);
	}
	while (!shared->started)
		sched_yield();
	for (int i = 0; i < shared->n; i++)
		write_some(i, WRITES);
	shared->over = 1;
	return NULL;
}

/* Something is hot. */
static void heat(void)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct epoll_event ev;

	ep_add(ep, fd, EPOLLIN, 1);
	for (int i = 0; i < 200; i++) {
		efd_add(fd, 1);
		assert_int_equal(epoll_wait(ep, &ev, 1, 0), 1);
		efd_take(fd);
	}
	close(fd);
	close(ep);
}

/* ---- ways to start it ---- */

enum how { SPAWN, VFORK, SYSTEM, EXEC, SETS };

static void start(enum how how)
{
	char *argv[] = {self, how == EXEC ? "--look" : "--wait", number, NULL};
	char cmd[4200];
	pid_t pid = 0;
	int status;

	switch (how) {
	case SPAWN:
	case SETS:
		assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
		break;
	case VFORK:
		pid = vfork();
		if (pid == 0) {
			execv(self, argv);
			_exit(4);
		}
		break;
	case SYSTEM:
		snprintf(cmd, sizeof(cmd), "'%s' --wait %s", self, number);
		status = system(cmd);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		return;
	case EXEC:
		execv(self, argv);
		_exit(4);
	}
	child_passes(pid);
}

static void one_round(enum how how, int i)
{
	/* It goes on where a round fails. */
	static struct test_thread t;

	thread_start(&t, makes, how == SETS ? shared : NULL);
	/* At another moment each time. */
	for (volatile int k = i * 1777 % 40000; k; k--)
		;
	start(how);
	assert_true(thread_join(&t, SOON_MS));
}

static void rounds(enum how how)
{
	heat();
	for (int i = 0; i < ROUNDS; i++) {
		memset((void *)shared, 0, sizeof(*shared));
		if (how == EXEC) {
			pid_t pid = fork();

			if (pid == 0)
				one_round(how, i);
			child_passes(pid);
			continue;
		}
		one_round(how, i);
		for (int k = 0; k < shared->n; k++)
			close(shared->made[k].fd);
	}
}

static void ESCAPE_a_spawned_program_has_what_was_written(void **state)
{
	(void)state;
	rounds(SPAWN);
}

static void ESCAPE_the_program_of_a_vfork_has_what_was_written(void **state)
{
	(void)state;
	rounds(VFORK);
}

static void ESCAPE_the_program_of_system_has_what_was_written(void **state)
{
	(void)state;
	if (SANITIZED && under_pollux())
		SKIP("a shell is not built with a sanitizer, and the drop-in is");
	rounds(SYSTEM);
}

static void ESCAPE_a_program_in_our_place_has_what_was_written(void **state)
{
	(void)state;
	rounds(EXEC);
}

static void ESCAPE_what_is_to_be_inherited_from_now_on_is(void **state)
{
	(void)state;
	rounds(SETS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest inherited[] = {
		cmocka_unit_test(ESCAPE_a_spawned_program_has_what_was_written),
		cmocka_unit_test(ESCAPE_the_program_of_a_vfork_has_what_was_written),
		cmocka_unit_test(ESCAPE_the_program_of_system_has_what_was_written),
		cmocka_unit_test(ESCAPE_a_program_in_our_place_has_what_was_written),
		cmocka_unit_test(ESCAPE_what_is_to_be_inherited_from_now_on_is),
	};
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc > 2)
		return looks(atoi(argv[2]), strcmp(argv[1], "--wait") == 0);
	if (n <= 0)
		return 1;
	self[n] = '\0';
	memory = memfd_create("shared", 0);
	if (memory < 0 || ftruncate(memory, sizeof(*shared)))
		return 1;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (shared == MAP_FAILED)
		return 1;
	snprintf(number, sizeof(number), "%d", memory);
	return run_group(inherited);
}
