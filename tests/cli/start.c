/* SPDX-License-Identifier: MIT */
/*
 * start HOW PROGRAM: starts it, in one of the ways there are, and ends as it has. It has no other
 * use for Pollux, unless it is built to name something (USES).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#ifdef USES
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
extern char used_here[] __asm__(TEXT(USES));
const void *volatile used = used_here;
#endif

extern char **environ;

static int ended(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* A filter that forbids nothing. */
static int filter(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &all};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int by_popen(const char *program)
{
	char line[4096];
	FILE *f = popen(program, "r");

	if (!f)
		return 99;
	while (fgets(line, sizeof(line), f))
		fputs(line, stdout);
	return WEXITSTATUS(pclose(f));
}

static int by_wordexp(const char *program)
{
	char line[4096];
	wordexp_t w;

	snprintf(line, sizeof(line), "$(%s)", program);
	if (wordexp(line, &w, 0))
		return 99;
	for (size_t i = 0; i < w.we_wordc; i++)
		printf("%s%c", w.we_wordv[i], i + 1 < w.we_wordc ? ' ' : '\n');
	return 0;
}

int main(int argc, char **argv)
{
	const char *how = argc == 3 ? argv[1] : "", *program = argv[argc - 1];
	const char *name = strrchr(program, '/');
	char *args[] = {(char *)program, NULL}, path[4096];
	pid_t pid = -1;

	name = name ? name + 1 : program;
	snprintf(path, sizeof(path), "/nonexistent:%.*s", (int)(name - program), program);
	if (!strcmp(how, "execv"))
		execv(program, args);
	else if (!strcmp(how, "execve"))
		execve(program, args, environ);
	else if (!strcmp(how, "execvp") && !setenv("PATH", path, 1))
		execvp(name, args);
	else if (!strcmp(how, "execvpe") && !setenv("PATH", path, 1))
		execvpe(name, args, environ);
	else if (!strcmp(how, "execl"))
		execl(program, program, (char *)NULL);
	else if (!strcmp(how, "execlp") && !setenv("PATH", path, 1))
		execlp(name, name, (char *)NULL);
	else if (!strcmp(how, "execle"))
		execle(program, program, (char *)NULL, environ);
	else if (!strcmp(how, "fexecve"))
		fexecve(open(program, O_RDONLY | O_CLOEXEC), args, environ);
	else if (!strcmp(how, "execveat"))
		execveat(AT_FDCWD, program, args, environ, 0);
	else if (!strcmp(how, "filtered") && !filter())
		execv(program, args);
	else if (!strcmp(how, "system"))
		return WEXITSTATUS(system(program));
	else if (!strcmp(how, "popen"))
		return by_popen(program);
	else if (!strcmp(how, "wordexp"))
		return by_wordexp(program);
	else if (!strcmp(how, "posix_spawn"))
		return posix_spawn(&pid, program, NULL, NULL, args, environ) ? 99 : ended(pid);
	else if (!strcmp(how, "posix_spawnp") && !setenv("PATH", path, 1))
		return posix_spawnp(&pid, name, NULL, NULL, args, environ) ? 99 : ended(pid);
	else if (!strcmp(how, "vfork") && (pid = vfork()) == 0)
		execv(program, args);
	else if (!strcmp(how, "fork") && (pid = fork()) == 0)
		execv(program, args);
	else if (pid > 0)
		return ended(pid);
	return 98;
}
