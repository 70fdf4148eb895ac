/* SPDX-License-Identifier: MIT */
/*
 * What a program gets from Pollux, and why not more: it is run with statistics, which come to its
 * standard error, a pipe here. What is not of the statistics goes on to ours.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long count;

/* What one process has said. */
struct process {
	char name[96];
	bool explained;
	count epolls, eventfds;
	count writes, waits, kernel_waits;
	count cached, cooled, cold, through, flushed, blocking;
	count saved;
	count timers, kept;
	count contexts, given, at_once, by_kernel;
};

#define OF_OURS "pollux: "

static struct process now;
static size_t n_processes;
/* Those that have made nothing, and the name of the last. */
static size_t n_idle;
static char idle[sizeof(now.name)];

/* --- what is said of a process ------------------------------------------------------------- */

static void explain_eventfds(const struct process *p)
{
	if (p->eventfds && !p->cached && p->cold)
		doctor_add(p->name, STATE_NOTE,
			   "None was written to often enough to be cached (64 times within 0.1 s).",
			   "eventfds: %llu, written to %llu times", p->eventfds, p->cold);
	else if (p->eventfds && !p->cached)
		doctor_add(p->name, STATE_NOTE, "Nobody has written to one; the kernel has them.",
			   "eventfds: %llu", p->eventfds);
	else if (p->eventfds)
		doctor_add(
			p->name, STATE_OK,
			p->through > p->writes / 10
				? "Many writes go through the kernel: somebody sleeps in a poll."
				: "Writes to one that is cached make no system call.",
			"eventfds: %llu, cached %llu times; writes: %llu before that, %llu cached, "
			"%llu through the kernel",
			p->eventfds, p->cached, p->cold, p->writes, p->through);
	if (p->cooled)
		doctor_add(p->name, STATE_NOTE,
			   "One that is cached was the kernel's again, as caching it did not pay.",
			   "eventfds: not cached any more %llu times, counts written back %llu",
			   p->cooled, p->flushed);
	if (p->blocking)
		doctor_add(p->name, STATE_NOTE,
			   "An eventfd is cached only if it is made with EFD_NONBLOCK.",
			   "eventfds that block: %llu", p->blocking);
}

static void explain(const struct process *p)
{
	if (p->epolls)
		doctor_add(
			p->name, p->saved ? STATE_OK : STATE_NOTE,
			p->saved ? "Waits look at what is cached before they ask the kernel."
				 : "It watches nothing that is cached.",
			"epolls: %llu; waits: %llu in the process, %llu the kernel's; system calls "
			"saved: %llu",
			p->epolls, p->waits, p->kernel_waits, p->saved);
	explain_eventfds(p);
	if (p->timers)
		doctor_add(p->name, p->kept ? STATE_OK : STATE_NOTE,
			   p->kept ? "The kernel is told only what a sleep depends on."
				   : "Each setting was one that the kernel has to know.",
			   "timers: %llu; settings that the kernel was not told: %llu", p->timers,
			   p->kept);
	if (p->contexts)
		doctor_add(p->name, p->at_once ? STATE_OK : STATE_NOTE,
			   p->at_once ? "Buffered requests are done within io_submit."
				      : "What is not buffered is the kernel's.",
			   "AIO contexts: %llu, of which the kernel's now: %llu; requests: %llu at "
			   "once, %llu by the kernel",
			   p->contexts, p->given, p->at_once, p->by_kernel);
}

/* Of many processes most often only one is of interest. */
static void explain_idle(void)
{
	char name[32];

	snprintf(name, sizeof(name), "%zu processes", n_idle);
	if (n_idle)
		doctor_add(n_idle == 1 ? idle : name, STATE_NOTE, "Pollux has nothing to serve.",
			   "made no epoll, eventfd or AIO context by functions of libc");
}

/* --- reading the statistics ---------------------------------------------------------------- */

static void process_ends(void)
{
	if (*now.name && !now.explained) {
		if (now.epolls || now.eventfds || now.contexts || now.blocking) {
			explain(&now);
		} else {
			memcpy(idle, now.name, sizeof(idle));
			n_idle++;
		}
	}
	now.explained = true;
}

static void read_left(const char *line)
{
	char way[64], why[128];
	count n;

	if (sscanf(line, "pollux: evicted by %63[^:]: %llu (%127[^\n]", way, &n, why) != 3)
		return;
	why[strcspn(why, ")")] = '\0';
	process_ends();
	doctor_add(now.name, STATE_NOTE, "From there on the object is the kernel's alone.",
		   "left by %s: %llu (%s)", way, n, why);
}

/* Whether it is a line of the statistics; the first of a process names it. */
static bool read_line(const char *line)
{
	static const char *const begins[] = {
		"adopted: ", "in process: ", "eventfds: ", "system calls: ", "ready lists: ",
		"wakes: ",   "timers ",	     "AIO ",	   "evicted by ",
	};
	bool known = false;
	char name[65];
	struct process p = {0};
	long pid;

	if (sscanf(line,
		   "pollux: adopted: %llu epolls, %llu eventfds; sleeps %*u; evicted %*u; process "
		   "%ld (%64[^)]",
		   &p.epolls, &p.eventfds, &pid, name) == 4) {
		process_ends();
		now = p;
		snprintf(now.name, sizeof(now.name), "%s %ld", name, pid);
		n_processes++;
		return true;
	}
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		known |= !strncmp(line + strlen(OF_OURS), begins[i], strlen(begins[i]));
	sscanf(line,
	       "pollux: in process: %*u reads, %llu writes, %*u ctl, %llu waits, %*u polls; left "
	       "to the kernel: %*u ctl, %llu waits",
	       &now.writes, &now.waits, &now.kernel_waits);
	sscanf(line,
	       "pollux: eventfds: %llu times cached, %llu times not any more; writes: %llu while "
	       "not cached, %llu through the kernel; %llu counts flushed; %llu made to block",
	       &now.cached, &now.cooled, &now.cold, &now.through, &now.flushed, &now.blocking);
	sscanf(line, "pollux: system calls: %llu saved", &now.saved);
	sscanf(line, "pollux: timers %llu: %llu settings that the kernel was not told", &now.timers,
	       &now.kept);
	sscanf(line, "pollux: AIO contexts %llu, of which %llu became the kernel's", &now.contexts,
	       &now.given);
	sscanf(line, "pollux: AIO requests: %llu done at once, %llu by the kernel's AIO",
	       &now.at_once, &now.by_kernel);
	read_left(line);
	return known;
}

/* So much of the end may be the beginning of a line of the statistics. */
static size_t may_begin(const char *text, size_t n)
{
	size_t k = n < strlen(OF_OURS) ? n : strlen(OF_OURS) - 1;

	while (k && memcmp(text + n - k, OF_OURS, k) != 0)
		k--;
	return k;
}

/*
 * Reads the lines of the statistics among n bytes; what is none goes on at once. Returns how much
 * of the end waits for more, if there is more.
 */
static size_t read_piece(char *text, size_t n, bool more)
{
	for (;;) {
		/* A program may have said something before it that does not end in a new line. */
		char *line = memmem(text, n, OF_OURS, strlen(OF_OURS)), *end;
		size_t left = line ? (size_t)(text + n - line) : more ? may_begin(text, n) : 0;

		fwrite(text, 1, n - left, stderr);
		end = line ? memchr(line, '\n', left) : NULL;
		if (!end && (!line || more))
			return left;
		line[end ? (size_t)(end - line) : left] = '\0';
		if (!read_line(line))
			fprintf(stderr, "%s%s", line, end ? "\n" : "");
		if (!end)
			return 0;
		text = end + 1;
		n = left - (size_t)(text - line);
	}
}

/* Until the program has ended and nothing is left in the pipe: others may keep it open. */
static int follow(int from, pid_t pid)
{
	static char text[16384];
	size_t have = 0;
	int status = 0;
	bool ended = false;

	for (;;) {
		struct pollfd p = {.fd = from, .events = POLLIN};
		ssize_t n;
		size_t left;

		if (poll(&p, 1, ended ? 0 : 100) > 0) {
			n = read(from, text + have, sizeof(text) - 1 - have);
			if (n > 0)
				have += (size_t)n;
			left = read_piece(text, have, n > 0);
			memmove(text, text + have - left, left);
			have = left;
			if (n > 0)
				continue;
		}
		if (ended)
			return status;
		/* Where SIGCHLD is ignored, there is no status, only an error. */
		ended = waitpid(pid, &status, p.revents & POLLHUP ? 0 : WNOHANG) != 0;
	}
}

static void child(char **argv, int out, int err, bool json) __attribute__((noreturn));
static void child(char **argv, int out, int err, bool json)
{
	if (json)
		dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	execv(argv[0], argv);
	dprintf(out, "%s: %s\n", argv[0], strerror(errno));
	_exit(RUN_REFUSED);
}

/* The status that wait gives, or a negative errno. */
static int run(char **argv, bool json)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, intr, quit;
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		child(argv, STDERR_FILENO, ends[1], json);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return -EAGAIN;
	}
	/* The keyboard's are the program's. */
	sigaction(SIGINT, &ignore, &intr);
	sigaction(SIGQUIT, &ignore, &quit);
	status = follow(ends[0], pid);
	sigaction(SIGINT, &intr, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	close(ends[0]);
	process_ends();
	explain_idle();
	return status;
}

void doctor_program(char **argv, bool json)
{
	char self[PATH_MAX];
	struct program program;
	char **by;
	size_t n = 0;
	int status;

	program_examine(argv[0], &program);
	if (program.state != PROGRAM_OK) {
		doctor_add(argv[0], STATE_FAIL,
			   program.state == PROGRAM_UNREACHABLE
				   ? "It runs on the kernel alone ('pollux run --force')."
				   : "It cannot be run.",
			   "%s", program.why);
		return;
	}
	if (!locate_self(self)) {
		doctor_add(argv[0], STATE_FAIL, "/proc is not mounted.", "cannot be run");
		return;
	}
	while (argv[n])
		n++;
	by = cli_alloc((n + 5) * sizeof(*by));
	by[0] = self;
	by[1] = "run";
	by[2] = "--stats";
	by[3] = "--";
	memcpy(by + 4, argv, (n + 1) * sizeof(*by));
	status = run(by, json);
	free(by);
	if (status < 0)
		doctor_add(argv[0], STATE_FAIL, "It was not run.", "%s", strerror(-status));
	else if (!n_processes)
		doctor_add(argv[0], WIFSIGNALED(status) ? STATE_NOTE : STATE_FAIL,
			   WIFSIGNALED(status)
				   ? "What a signal ends says nothing at its end."
				   : "The drop-in did not get into it, or its standard error is "
				     "another file.",
			   WIFSIGNALED(status) ? "was ended by signal %d" : "ended with status %d",
			   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}
