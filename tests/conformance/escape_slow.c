/* SPDX-License-Identifier: MIT */
/*
 * A call that replaces or closes a descriptor ends another file by it, which may take long. Nobody
 * else waits for it: a fork, a start of a program, a descriptor that is made.
 *
 * The file is a socket that lingers (SO_LINGER): its close waits for a peer that does not read.
 */
#include "waiting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

struct slow {
	struct test_thread t;
	int (*call)(struct slow *);
	/* What dup2 puts in the place of the socket. */
	int fd, socket, peer;
};

/* Its peer does not read, and has room for less than is to be sent. */
static struct slow lingering(int fd)
{
	struct linger l = {.l_onoff = 1, .l_linger = SOON_MS / 1000};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct slow s = {.fd = fd};
	char room[4096] = {0};
	socklen_t n = sizeof(a);
	int listener = (int)assert_ok(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), few = 4096;

	/* That of who is accepted, which cannot grow then. */
	assert_ok(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)));
	assert_ok(bind(listener, (struct sockaddr *)&a, n));
	assert_ok(listen(listener, 1));
	assert_ok(getsockname(listener, (struct sockaddr *)&a, &n));
	s.socket = (int)assert_ok(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	assert_ok(connect(s.socket, (struct sockaddr *)&a, n));
	s.peer = (int)assert_ok(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	assert_ok(close(listener));
	assert_ok(fcntl(s.socket, F_SETFL, O_NONBLOCK));
	while (send(s.socket, room, sizeof(room), 0) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	assert_ok(fcntl(s.socket, F_SETFL, 0));
	assert_ok(setsockopt(s.socket, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	return s;
}

static int by_dup2(struct slow *s)
{
	return dup2(s->fd, s->socket) == s->socket;
}

static int by_close_range(struct slow *s)
{
	return close_range((unsigned int)s->socket, (unsigned int)s->socket, 0) == 0;
}

static int by_close(struct slow *s)
{
	return close(s->socket) == 0;
}

static void *call_main(void *arg)
{
	struct slow *s = arg;
	sigset_t all;

	/* A signal, that of a child which ends, too, would end the lingering. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	return s->call(s) ? s : NULL;
}

static void forks(void)
{
	int status;
	pid_t pid = (pid_t)assert_ok(fork());

	if (pid == 0)
		_exit(7);
	assert_int_equal(assert_ok(waitpid(pid, &status, 0)), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void starts(void)
{
	char *argv[] = {"true", NULL};
	pid_t pid;

	assert_int_equal(posix_spawnp(&pid, "true", NULL, NULL, argv, environ), 0);
	child_passes(pid);
}

static void makes(void)
{
	int ep = ep_new(), efd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 1));
	efd_add(efd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(close(efd));
	assert_ok(close(ep));
}

static void nobody_waits(int (*call)(struct slow *), bool epoll)
{
	int ep = ep_new(), efd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct slow s = lingering(epoll ? ep : efd);

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 1));
	s.call = call;
	thread_start(&s.t, call_main, &s);
	assert_true(thread_asleep(&s.t));
	makes();
	forks();
	starts();
	makes();
	assert_false(thread_done(&s.t));
	assert_ok(close(s.peer));
	assert_true(thread_join(&s.t, SOON_MS));
	assert_non_null(s.t.ret);
	efd_add(efd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	(void)close(s.socket);
	assert_ok(close(efd));
	assert_ok(close(ep));
}

static void ESCAPE_nobody_waits_for_a_dup2_of_an_eventfd(void **state)
{
	(void)state;
	nobody_waits(by_dup2, false);
}

static void ESCAPE_nobody_waits_for_a_dup2_of_an_epoll(void **state)
{
	(void)state;
	nobody_waits(by_dup2, true);
}

static void ESCAPE_nobody_waits_for_a_close_range(void **state)
{
	(void)state;
	nobody_waits(by_close_range, false);
}

static void ESCAPE_nobody_waits_for_a_close(void **state)
{
	(void)state;
	nobody_waits(by_close, false);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_nobody_waits_for_a_dup2_of_an_eventfd),
		cmocka_unit_test(ESCAPE_nobody_waits_for_a_dup2_of_an_epoll),
		cmocka_unit_test(ESCAPE_nobody_waits_for_a_close_range),
		cmocka_unit_test(ESCAPE_nobody_waits_for_a_close),
	};

	return run_group(tests);
}
