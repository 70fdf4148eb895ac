/* SPDX-License-Identifier: MIT */
/* The pollux command: what its files share. */
#ifndef POLLUX_CLI_H
#define POLLUX_CLI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifndef CLI_VERSION
#define CLI_VERSION "0"
#endif
#ifndef POLLUX_LIBDIR
#define POLLUX_LIBDIR "/usr/local/lib"
#endif

#define PRELOAD_NAME "libpollux-preload.so"
#define STARTER_NAME "libpollux-starter.so"

/* Exit statuses of everything but `run`. */
enum {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
};

/* Exit statuses of `run` itself, as env(1) and timeout(1) have them. */
enum {
	RUN_REFUSED = 125,
	RUN_NOT_EXECUTABLE = 126,
	RUN_NOT_FOUND = 127,
};

int cmd_run(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_bench(int argc, char **argv);

/* "pollux: ..." on standard error. */
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Points at the help of a subcommand (NULL for the command itself) and returns `status`. */
int cli_try_help(const char *subcommand, int status);
void *cli_alloc(size_t size);
char *cli_strdup(const char *s);
char *cli_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
double cli_now(void);

/* locate.c: the parts of Pollux that lie beside this executable. */

/* The path of this executable; false if /proc cannot tell. */
bool locate_self(char path[PATH_MAX]);
/* The drop-in. On failure `path` holds the list of the places that were searched. */
bool locate_preload(char path[PATH_MAX]);
/* A bench program or script of that name. */
bool locate_bench(const char *name, char path[PATH_MAX]);

/* program.c: whether a program can be run with the drop-in. */

enum program_state {
	PROGRAM_OK,
	PROGRAM_NOT_FOUND,
	PROGRAM_NOT_EXECUTABLE,
	/* It could be executed, but the drop-in would not get into it. */
	PROGRAM_UNREACHABLE,
};

struct program {
	enum program_state state;
	/* What will be executed, once found. */
	char path[PATH_MAX];
	/* Why not, as a sentence without the program's name in front. */
	char why[PATH_MAX + 256];
};

void program_examine(const char *name, struct program *p);

/* proc.c: a child process with a time limit, its output collected. */

struct child {
	/* In. */
	char *const *argv;
	/* NULL-terminated pairs of name, value; a NULL value removes the variable. */
	const char *const (*env)[2];
	double limit;
	/* Called several times a second while the child runs; may be NULL. */
	void (*tick)(void *arg);
	void *tick_arg;
	/* Out. */
	int status;
	bool timed_out;
	double seconds;
	char out[8192];
	char err[8192];
};

/* 0, or a negative errno if the child could not be started. */
int child_run(struct child *c);
/* How it ended, in words. */
void child_describe(const struct child *c, char *text, size_t size);

/* json.c: writing JSON with the commas in place. */

struct json {
	FILE *f;
	int depth;
	bool first[16];
};

void json_start(struct json *j, FILE *f);
void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket);
void json_string(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, double value);
void json_integer(struct json *j, const char *key, long long value);
void json_bool(struct json *j, const char *key, bool value);

/* machine.c: the machine in words. */

struct machine {
	char cpu[128];
	char kernel[128];
	char arch[65];
	char date[32];
	int cpus;
	double load[3];
	unsigned long long memory_kb;
};

void machine_describe(struct machine *m);

/* CPU time in seconds: of the whole machine, and of this process and its children. */
struct cpu_time {
	double total, busy, stolen, ours;
};

/* Until now. All zero if the kernel does not tell. */
void machine_cpu_time(struct cpu_time *t);
/* Adds what passed between two calls of that. */
void cpu_time_add(struct cpu_time *sum, const struct cpu_time *from, const struct cpu_time *to);
void cpu_time_sum(struct cpu_time *sum, const struct cpu_time *t);
/* The shares of the machine that went to other programs and to the host; NAN if unknown. */
double cpu_time_others(const struct cpu_time *t);
double cpu_time_stolen(const struct cpu_time *t);
/* The first line of a small file such as those under /proc/sys; false if it cannot be read. */
bool machine_read_line(const char *path, char *line, size_t size);

#endif
