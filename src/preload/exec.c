/* SPDX-License-Identifier: MIT */
/*
 * execve execv execvp execvpe execl execlp execle fexecve execveat
 * posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp
 * prctl   PR_SET_SECCOMP: everything escapes and adoption ends, as the filter knows nothing of the
 *         calls that we would make; not if there is none: so programs ask
 *
 * What the new program inherits escapes first (inherit.c), and a program that has no use for us, or
 * a small one, starts with what it has use for (needless.c). What libc starts by itself is a shell,
 * with what the environment names.
 *
 * This file is also a part of the library for programs that only start others (src/starter).
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * For a call with the environment envp of what x tells: `light` is that which the new program gets.
 * The array lies on the stack: the caller may be the child of a vfork.
 */
#define LIGHT_ENV(x, envp)                                                                         \
	struct plx_needless needless;                                                              \
	char *room[plx_needless(&needless, x, envp)];                                              \
	char *const *light = plx_needless_env(&needless, room)

/*
 * All return the number of an error, also where libc does not have them. The file actions may
 * change the folder from which a relative path starts.
 */
#define SPAWN(name, searched)                                                                      \
	PLX_EXPORT int name(int *, const char *, const posix_spawn_file_actions_t *,               \
			    const posix_spawnattr_t *, char *const[], char *const[]);              \
	PLX_EXPORT int name(int *pid, const char *path, const posix_spawn_file_actions_t *actions, \
			    const posix_spawnattr_t *attr, char *const argv[], char *const envp[]) \
	{                                                                                          \
		struct plx_execution x = {.dir = AT_FDCWD,                                         \
					  .path = path,                                            \
					  .search = searched,                                      \
					  .elsewhere = actions,                                    \
					  .beside = true};                                         \
		bool beside = plx_before_spawn(actions);                                           \
		int r;                                                                             \
                                                                                                   \
		LIGHT_ENV(&x, envp);                                                               \
		r = plx_real.name(pid, path, actions, attr, argv, light);                          \
		plx_after_start(&beside);                                                          \
		return r < 0 ? ENOSYS : r;                                                         \
	}
SPAWN(posix_spawn, false)
SPAWN(posix_spawnp, true)
SPAWN(pidfd_spawn, false)
SPAWN(pidfd_spawnp, true)

static PLX_CHILD_CODE int run(const struct plx_execution *x, char *const argv[], char *const envp[])
{
	bool beside = plx_before_exec();
	int r;

	LIGHT_ENV(x, envp);
	r = (x->search ? plx_real.execvpe : plx_real.execve)(x->path, argv, light);
	plx_after_start(&beside);
	return r;
}

static PLX_CHILD_CODE int run_path(const char *path, char *const argv[], char *const envp[])
{
	return run(&(struct plx_execution){.dir = AT_FDCWD, .path = path}, argv, envp);
}

static PLX_CHILD_CODE int run_file(const char *file, char *const argv[], char *const envp[])
{
	return run(&(struct plx_execution){.dir = AT_FDCWD, .path = file, .search = true}, argv,
		   envp);
}

PLX_EXPORT PLX_CHILD_CODE int execve(const char *path, char *const argv[], char *const envp[])
{
	return run_path(path, argv, envp);
}

PLX_EXPORT PLX_CHILD_CODE int execv(const char *path, char *const argv[])
{
	return run_path(path, argv, environ);
}

PLX_EXPORT PLX_CHILD_CODE int execvpe(const char *file, char *const argv[], char *const envp[])
{
	return run_file(file, argv, envp);
}

PLX_EXPORT PLX_CHILD_CODE int execvp(const char *file, char *const argv[])
{
	return run_file(file, argv, environ);
}

PLX_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	struct plx_execution x = {.dir = fd, .path = "", .flags = AT_EMPTY_PATH};
	bool beside = plx_before_exec();
	int r;

	LIGHT_ENV(&x, envp);
	r = plx_real.fexecve(fd, argv, light);
	plx_after_start(&beside);
	return r;
}

PLX_EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[],
			int flags)
{
	struct plx_execution x = {.dir = dir, .path = path, .flags = flags};
	bool beside = plx_before_exec();
	int r;

	LIGHT_ENV(&x, envp);
	r = plx_real.execveat(dir, path, argv, light, flags);
	plx_after_start(&beside);
	return r;
}

static size_t count_args(va_list ap)
{
	size_t n = 0;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/*
 * The array lives on the stack, as in libc: the caller may be the child of a vfork.
 * `argv` and, for execle, `envp` are set from the arguments that start with `arg`.
 */
#define COLLECT(arg, with_env)                                                                     \
	const char *first = arg;                                                                   \
	char *const *envp = environ;                                                               \
	va_list ap;                                                                                \
	size_t n = 0;                                                                              \
                                                                                                   \
	/* The header says that it is not NULL; programs do not always care. */                    \
	__asm__("" : "+r"(first));                                                                 \
	if (first) {                                                                               \
		va_start(ap, arg);                                                                 \
		n = 1 + count_args(ap);                                                            \
		va_end(ap);                                                                        \
	}                                                                                          \
	char *argv[n + 1];                                                                         \
	va_start(ap, arg);                                                                         \
	argv[0] = (char *)first;                                                                   \
	for (size_t i = 1; i <= n; i++)                                                            \
		argv[i] = va_arg(ap, char *);                                                      \
	if (with_env)                                                                              \
		envp = va_arg(ap, char *const *);                                                  \
	va_end(ap)

PLX_EXPORT PLX_CHILD_CODE int execl(const char *path, const char *arg, ...)
{
	COLLECT(arg, false);
	return run_path(path, argv, envp);
}

PLX_EXPORT PLX_CHILD_CODE int execlp(const char *file, const char *arg, ...)
{
	COLLECT(arg, false);
	return run_file(file, argv, envp);
}

PLX_EXPORT PLX_CHILD_CODE int execle(const char *path, const char *arg, ...)
{
	COLLECT(arg, true);
	return run_path(path, argv, envp);
}

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

/* With some settings our system calls, and looks at the clock, would be seen, as by a filter. */
void plx_before_prctl(int op, unsigned long a, const void *b)
{
	if (op == PR_SET_SECCOMP)
		plx_sandbox(a, b);
	else if ((op == PR_SET_TSC && a == PR_TSC_SIGSEGV) ||
		 (op == PR_SET_SYSCALL_USER_DISPATCH && a))
		plx_sandbox(SECCOMP_MODE_STRICT, NULL);
}

PLX_EXPORT int prctl(int op, ...)
{
	long a, b, c, d;
	va_list ap;

	va_start(ap, op);
	a = va_arg(ap, long);
	b = va_arg(ap, long);
	c = va_arg(ap, long);
	d = va_arg(ap, long);
	va_end(ap);
	plx_before_prctl(op, (unsigned long)a, (const void *)b);
	return plx_real.prctl(op, a, b, c, d);
}
