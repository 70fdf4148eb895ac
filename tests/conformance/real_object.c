/* SPDX-License-Identifier: MIT */
/*
 * A number is the kernel's object that it seems to be, registered as the program has done it, for
 * those who see it past libc: another process, or an instruction of the program's own.
 */
#include "waiting.h"

#include <inttypes.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>

#define MASK (EPOLLIN | EPOLLRDHUP | EPOLLET)
#define DATA 0x1234567890abcdefull
#define EFDS 3

/* What is served when the other process looks; it is older, so that no fork has shared it. */
struct objects {
	int ep, efd[EFDS];
	pid_t pid;
};

static int other_gets(int sock, struct objects *o)
{
	o->pid = getppid();
	return read(sock, o, offsetof(struct objects, pid)) == offsetof(struct objects, pid);
}

/* Runs look in a process that is told of the objects when they are there: what it says. */
static int seen_by_another(int (*look)(const struct objects *))
{
	struct objects o;
	int sv[2];
	pid_t pid;
	int said;

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		struct objects mine;

		close(sv[0]);
		_exit(other_gets(sv[1], &mine) ? look(&mine) : 1);
	}
	close(sv[1]);
	o.ep = ep_new();
	for (int i = 0; i < EFDS; i++)
		o.efd[i] = efd_new(0, EFD_NONBLOCK);
	ep_add(o.ep, o.efd[0], EPOLLIN, 1);
	ep_mod(o.ep, o.efd[0], MASK, DATA);
	ep_add(o.ep, o.efd[1], EPOLLIN, 2);
	ep_del(o.ep, o.efd[1]);
	efd_add(o.efd[0], 1);
	assert_int_equal(fd_served(o.efd[0]), under_pollux());
	assert_int_equal(write(sv[0], &o, offsetof(struct objects, pid)),
			 offsetof(struct objects, pid));
	said = child_end(pid);
	assert_true(ep_one(o.ep, EPOLLIN, DATA));
	assert_int_equal(efd_take(o.efd[0]), 1);
	for (int i = 0; i < EFDS; i++)
		close(o.efd[i]);
	close(o.ep);
	close(sv[0]);
	return said;
}

static int sees_registrations(const struct objects *o)
{
	char path[64], line[256];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)o->pid, o->ep);
	f = fopen(path, "re");
	child_check(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		uint64_t data;
		uint32_t events;
		int fd;

		if (sscanf(line, "tfd: %d events: %" SCNx32 " data: %" SCNx64, &fd, &events,
			   &data) != 3)
			continue;
		child_check(fd == o->efd[0]);
		child_check((events & ~(uint32_t)(EPOLLERR | EPOLLHUP)) == MASK && data == DATA);
		n++;
	}
	fclose(f);
	child_check(n == 1);
	return 0;
}

/* The mask and the data of the last change, and nothing that was removed. */
static void ESCAPE_another_process_sees_the_registration(void **state)
{
	(void)state;
	assert_int_equal(seen_by_another(sees_registrations), 0);
}

static int gets_the_objects(const struct objects *o)
{
	int pidfd = (int)syscall(SYS_pidfd_open, o->pid, 0), fd[EFDS];
	struct pollfd p = {.events = POLLIN};
	uint64_t one = 1;

	if (pidfd == -1)
		return EXIT_SKIPPED;
	for (int i = 0; i < EFDS; i++) {
		fd[i] = (int)syscall(SYS_pidfd_getfd, pidfd, o->efd[i], 0);
		if (fd[i] == -1 && (errno == EPERM || errno == ENOSYS))
			return EXIT_SKIPPED;
		child_check(fd[i] != -1);
		child_check(syscall(SYS_kcmp, getpid(), o->pid, KCMP_FILE, fd[i], o->efd[i]) == 0 ||
			    errno == ENOSYS || errno == EPERM);
	}
	/* Each is an object of its own. */
	child_check(write(fd[1], &one, sizeof(one)) == sizeof(one));
	p.fd = fd[2];
	child_check(poll(&p, 1, 0) == 0);
	p.fd = fd[1];
	child_check(poll(&p, 1, 0) == 1);
	child_check(read(fd[1], &one, sizeof(one)) == sizeof(one) && one == 1);
	child_check(poll(&p, 1, 0) == 0);
	return 0;
}

static void ESCAPE_another_process_gets_the_object(void **state)
{
	(void)state;
	assert_child(seen_by_another(gets_the_objects), "no pidfd_getfd for this user");
}

/* The kernel's registration is told of it, whoever sleeps there. */
static void ESCAPE_a_write_by_an_own_instruction_wakes(void **state)
{
	uint64_t one = 1;
	struct waiter *w;
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLET, 5);
	assert_int_equal(fd_served(fd), under_pollux());
	w = waiter_new(ep, 8);
	assert_int_equal(own_call(SYS_write, fd, (long)&one, sizeof(one)), sizeof(one));
	waiter_got(w, EPOLLIN, 5);
	close(fd);
	close(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_another_process_sees_the_registration),
		cmocka_unit_test(ESCAPE_another_process_gets_the_object),
		cmocka_unit_test(ESCAPE_a_write_by_an_own_instruction_wakes),
	};

	return run_group(tests);
}
