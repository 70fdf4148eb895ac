/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 100
/* How long a child may take to clean up after SIGTERM. */
#define GRACE_SECONDS 5.0
/* How long output is awaited from grandchildren once the child itself has gone. */
#define DRAIN_SECONDS 0.3

static void child_exec(const struct child *c, int out, int err) __attribute__((noreturn));
static void child_exec(const struct child *c, int out, int err)
{
	int null = open("/dev/null", O_RDONLY);

	/* A child must not outlive an interrupted measurement. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	for (size_t i = 0; c->env && c->env[i][0]; i++) {
		if (c->env[i][1])
			setenv(c->env[i][0], c->env[i][1], 1);
		else
			unsetenv(c->env[i][0]);
	}
	execv(c->argv[0], c->argv);
	dprintf(STDERR_FILENO, "%s: %s\n", c->argv[0], strerror(errno));
	_exit(127);
}

/* Reads what is there into a string of fixed size; what does not fit is dropped. */
static bool drain(int fd, char *text, size_t size)
{
	char buffer[4096];
	ssize_t n = read(fd, buffer, sizeof(buffer));
	size_t have = strlen(text), room = size - 1 - have;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n == 0)
		return false;
	if ((size_t)n < room)
		room = (size_t)n;
	memcpy(text + have, buffer, room);
	text[have + room] = '\0';
	return true;
}

int child_run(struct child *c)
{
	struct pollfd fds[2];
	int out[2], err[2];
	double start = cli_now(), ended = 0, terminated = 0;
	bool killed = false, reaped = false;
	pid_t pid;

	c->status = 0;
	c->timed_out = false;
	c->out[0] = c->err[0] = '\0';
	if (pipe2(out, O_CLOEXEC))
		return -errno;
	if (pipe2(err, O_CLOEXEC)) {
		int e = errno;

		close(out[0]);
		close(out[1]);
		return -e;
	}
	fflush(stdout);
	fflush(stderr);
	pid = fork();
	if (pid < 0) {
		int e = errno;

		close(out[0]);
		close(out[1]);
		close(err[0]);
		close(err[1]);
		return -e;
	}
	if (pid == 0)
		child_exec(c, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	fds[0] = (struct pollfd){.fd = out[0], .events = POLLIN};
	fds[1] = (struct pollfd){.fd = err[0], .events = POLLIN};

	while (!reaped || fds[0].fd >= 0 || fds[1].fd >= 0) {
		double now;

		/* With both pipes shut only the child's end is awaited, which poll cannot see. */
		poll(fds, 2, fds[0].fd < 0 && fds[1].fd < 0 ? 1 : TICK_MS);
		if (fds[0].fd >= 0 && fds[0].revents && !drain(out[0], c->out, sizeof(c->out)))
			fds[0].fd = -1;
		if (fds[1].fd >= 0 && fds[1].revents && !drain(err[0], c->err, sizeof(c->err)))
			fds[1].fd = -1;
		now = cli_now();
		if (!reaped && waitpid(pid, &c->status, WNOHANG) == pid) {
			reaped = true;
			ended = now;
		}
		if (reaped && now - ended > DRAIN_SECONDS)
			break;
		if (!reaped && !c->timed_out && now - start > c->limit) {
			c->timed_out = true;
			terminated = now;
			kill(pid, SIGTERM);
		}
		if (!reaped && c->timed_out && !killed && now - terminated > GRACE_SECONDS) {
			killed = true;
			kill(pid, SIGKILL);
		}
		if (c->tick)
			c->tick(c->tick_arg);
	}
	close(out[0]);
	close(err[0]);
	c->seconds = ended - start;
	return 0;
}

void child_describe(const struct child *c, char *text, size_t size)
{
	if (c->timed_out)
		snprintf(text, size, "did not end within %.0f s and was stopped", c->limit);
	else if (WIFSIGNALED(c->status))
		snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(c->status),
			 strsignal(WTERMSIG(c->status)));
	else
		snprintf(text, size, "ended with exit status %d", WEXITSTATUS(c->status));
}
