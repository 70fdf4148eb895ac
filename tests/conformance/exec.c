/* SPDX-License-Identifier: MIT */
/*
 * Programs that are started by each function there is. One that has no use for the drop-in is
 * started without it, so it says the same on both sides: nothing preloaded, nothing mapped. What
 * the caller gave is not touched, and calls that fail do so as on the kernel.
 */
#include "waiting.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

extern char **environ;

/* Built beside us, without a sanitizer; its folder and its whole path. */
#define CHILD "exec-child"
static char folder[2048];
static char child[4096];

enum call {
	EXECVE,
	EXECV,
	EXECVP,
	EXECVPE,
	EXECL,
	EXECLP,
	EXECLE,
	FEXECVE,
	EXECVEAT,
	EXECVEAT_EMPTY,
	RAW_EXECVE,
	RAW_EXECVEAT,
	VFORK_EXECVE,
	VFORK_EXECVP,
	SPAWN,
	SPAWNP,
	SPAWN_ACTIONS,
	SPAWNP_ACTIONS,
	CALLS,
};

static bool takes_env(enum call how)
{
	return how != EXECV && how != EXECVP && how != EXECL && how != EXECLP &&
	       how != VFORK_EXECVP;
}

static void do_exec(enum call how, const char *path, const char *file, int dir, int fd, char **env)
{
	char *argv[] = {(char *)CHILD, NULL};

	switch (how) {
	case EXECV:
		execv(path, argv);
		break;
	case EXECVP:
	case VFORK_EXECVP:
		execvp(file, argv);
		break;
	case EXECVPE:
		execvpe(file, argv, env);
		break;
	case EXECL:
		execl(path, CHILD, (char *)NULL);
		break;
	case EXECLP:
		execlp(file, CHILD, (char *)NULL);
		break;
	case EXECLE:
		execle(path, CHILD, (char *)NULL, env);
		break;
	case FEXECVE:
		fexecve(fd, argv, env);
		break;
	case EXECVEAT:
		execveat(dir, file, argv, env, 0);
		break;
	case EXECVEAT_EMPTY:
		execveat(fd, "", argv, env, AT_EMPTY_PATH);
		break;
	case RAW_EXECVE:
		syscall(SYS_execve, path, argv, env);
		break;
	case RAW_EXECVEAT:
		syscall(SYS_execveat, dir, file, argv, env, 0);
		break;
	default:
		execve(path, argv, env);
	}
}

/* Runs the child; what it says is in `said`. */
static void run_child(enum call how, const char *path, const char *file, char **env, char *said,
		      size_t size)
{
	char *argv[] = {(char *)CHILD, NULL};
	int dir = (int)assert_ok(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	int fd = (int)assert_ok(open(path, O_RDONLY | O_CLOEXEC));
	int p[2], out = (int)assert_ok(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
	size_t n = 0;
	ssize_t r;
	pid_t pid = -1;

	assert_ok(pipe2(p, O_CLOEXEC));
	fflush(NULL);
	if (how >= VFORK_EXECVE) {
		posix_spawn_file_actions_t fa;
		bool actions = how == SPAWN_ACTIONS || how == SPAWNP_ACTIONS;

		posix_spawn_file_actions_init(&fa);
		if (actions)
			assert_int_equal(posix_spawn_file_actions_adddup2(&fa, p[1], 1), 0);
		else
			assert_ok(dup2(p[1], STDOUT_FILENO));
		if (how == VFORK_EXECVE || how == VFORK_EXECVP) {
			pid = vfork();
			if (pid == 0) {
				do_exec(how, path, file, dir, fd, env);
				_exit(127);
			}
		} else if (how == SPAWN || how == SPAWN_ACTIONS) {
			assert_int_equal(
				posix_spawn(&pid, path, actions ? &fa : NULL, NULL, argv, env), 0);
		} else {
			assert_int_equal(
				posix_spawnp(&pid, file, actions ? &fa : NULL, NULL, argv, env), 0);
		}
		assert_ok(dup2(out, STDOUT_FILENO));
		posix_spawn_file_actions_destroy(&fa);
	} else {
		pid = fork();
		if (pid == 0) {
			dup2(p[1], STDOUT_FILENO);
			do_exec(how, path, file, dir, fd, env);
			_exit(127);
		}
	}
	assert_true(pid > 0);
	close(p[1]);
	while ((r = read(p[0], said + n, size - 1 - n)) > 0)
		n += (size_t)r;
	said[n] = '\0';
	close(p[0]);
	close(out);
	close(fd);
	close(dir);
	assert_int_equal(child_end(pid), 0);
}

/*
 * The environment and one variable more, in memory that cannot be written; behind the array is
 * memory that cannot be read.
 */
static char **env_in_stone(char **from, const char *more)
{
	size_t n = 0, bytes = strlen(more) + 1, page = getpagesize();
	char **array, *text, *m;

	while (from[n])
		bytes += strlen(from[n++]) + 1;
	bytes = (bytes + page - 1) / page * page;
	m = mmap(NULL, bytes + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	assert_true(m != MAP_FAILED && (n + 2) * sizeof(*array) <= page);
	text = m;
	array = (char **)(m + bytes + page) - (n + 2);
	for (size_t i = 0; i <= n; i++) {
		const char *s = i < n ? from[i] : more;

		array[i] = strcpy(text, s);
		text += strlen(s) + 1;
	}
	assert_ok(mprotect(m, bytes + page, PROT_READ));
	assert_ok(mprotect(m + bytes + page, page, PROT_NONE));
	return array;
}

static char *path_before;

static void path_set(const char *path)
{
	if (!path_before)
		path_before = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	setenv("PATH", path, 1);
}

static void path_reset(void)
{
	setenv("PATH", path_before, 1);
}

static void EXEC_a_program_without_use_for_it_is_started_plain(void **state)
{
	char path[4200], said[4096];
	char **env = env_in_stone(environ, "CHILD=given");

	(void)state;
	snprintf(path, sizeof(path), "/nonexistent:/dev/null:%s:/bin", folder);
	path_set(path);
	/* Twice: what was found out is remembered. */
	for (int i = 0; i < 2 * CALLS; i++) {
		enum call how = (enum call)(i % CALLS);

		run_child(how, child, CHILD, env, said, sizeof(said));
		assert_string_equal(said, takes_env(how) ? "plain - given\n" : "plain - -\n");
	}
	path_reset();
}

static void EXEC_an_environment_of_its_own(void **state)
{
	char *own[] = {(char *)"CHILD=own", NULL}, *empty[] = {NULL};
	char said[4096];

	(void)state;
	for (int how = 0; how < CALLS; how++) {
		if (!takes_env((enum call)how) || how == EXECVPE || how == SPAWNP ||
		    how == SPAWNP_ACTIONS)
			continue;
		run_child((enum call)how, child, CHILD, own, said, sizeof(said));
		assert_string_equal(said, "plain - own\n");
		run_child((enum call)how, child, CHILD, empty, said, sizeof(said));
		assert_string_equal(said, "plain - -\n");
		/* The kernel takes none for an empty one. */
		if (how != EXECVE && how != RAW_EXECVE && how != SPAWN)
			continue;
		run_child((enum call)how, child, CHILD, NULL, said, sizeof(said));
		assert_string_equal(said, "plain - -\n");
	}
}

static void EXEC_a_relative_path_starts_where_the_program_does(void **state)
{
	char said[4096], here[4096];
	posix_spawn_file_actions_t fa;
	char *argv[] = {(char *)CHILD, NULL};
	int st;
	pid_t pid;

	(void)state;
	assert_non_null(getcwd(here, sizeof(here)));
	assert_ok(chdir(folder));
	path_set("");
	run_child(EXECVE, CHILD, CHILD, environ, said, sizeof(said));
	assert_string_equal(said, "plain - -\n");
	run_child(EXECVP, CHILD, CHILD, environ, said, sizeof(said));
	assert_string_equal(said, "plain - -\n");
	run_child(EXECVP, CHILD, "./" CHILD, environ, said, sizeof(said));
	assert_string_equal(said, "plain - -\n");
	path_reset();
	assert_ok(chdir(here));

	/* The actions go elsewhere first. There is no such file here. */
	assert_int_equal(posix_spawn_file_actions_init(&fa), 0);
	assert_int_equal(posix_spawn_file_actions_addchdir_np(&fa, "/"), 0);
	st = posix_spawn(&pid, "./" CHILD, &fa, NULL, argv, environ);
	assert_int_equal(st, ENOENT);
	posix_spawn_file_actions_destroy(&fa);
}

/* In a child: how it fails, or does not. */
static int errno_of(const char *path, char **argv, char **env)
{
	errno = 0;
	return execve(path, argv, env) == -1 ? errno : -1;
}

static void EXEC_errors(void **state)
{
	char dir[] = "/tmp/pollux-exec.XXXXXX", path[4096], loop[4096], long_name[5000];
	char *argv[] = {(char *)"x", NULL}, *big[] = {(char *)"x", NULL, NULL}, *text;
	char *bad_env[] = {(char *)"A=1", (char *)8, NULL};
	/* Not known to the compiler as what the header forbids. */
	char *volatile nowhere = (char *)8;
	pid_t pid;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(loop, sizeof(loop), "%s/loop", dir);
	fd = (int)assert_ok(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	assert_int_equal(write(fd, "exit 3\n", 7), 7);
	close(fd);
	assert_ok(symlink("loop", loop));
	memset(long_name, 'a', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';

	assert_int_equal(errno_of("/nonexistent", argv, environ), ENOENT);
	assert_int_equal(errno_of("", argv, environ), ENOENT);
	assert_int_equal(errno_of("/dev/null/x", argv, environ), ENOTDIR);
	assert_int_equal(errno_of("/", argv, environ), EACCES);
	assert_int_equal(errno_of("/dev/null", argv, environ), EACCES);
	assert_int_equal(errno_of(path, argv, environ), EACCES);
	assert_int_equal(errno_of(loop, argv, environ), ELOOP);
	assert_int_equal(errno_of(long_name, argv, environ), ENAMETOOLONG);
	assert_ok(chmod(path, 0755));
	assert_int_equal(errno_of(path, argv, environ), ENOEXEC);

	text = malloc(1 << 20);
	memset(text, 'a', (1 << 20) - 1);
	text[(1 << 20) - 1] = '\0';
	big[1] = text;
	assert_int_equal(errno_of(child, big, environ), E2BIG);
	assert_int_equal(errno_of(child, argv, big), E2BIG);
	free(text);

	assert_int_equal(errno_of(nowhere, argv, environ), EFAULT);
	assert_int_equal(errno_of(child, (char **)nowhere, environ), EFAULT);
	assert_int_equal(errno_of(child, argv, (char **)nowhere), EFAULT);
	assert_int_equal(errno_of(child, argv, bad_env), EFAULT);
	/* The sanitizers look at the environment of this one themselves. */
	if (!SANITIZED)
		assert_int_equal(posix_spawn(&pid, child, NULL, NULL, argv, bad_env), EFAULT);
	path_set(folder);
	assert_int_equal(posix_spawn(&pid, "/nonexistent", NULL, NULL, argv, environ), ENOENT);
	assert_int_equal(posix_spawnp(&pid, "pollux-no-such", NULL, NULL, argv, environ), ENOENT);
	assert_errno(execvp("pollux-no-such", argv), ENOENT);
	assert_errno(execvp("", argv), ENOENT);
	path_reset();
	assert_errno(fexecve(-1, argv, environ), EINVAL);
	assert_errno(execveat(-1, "x", argv, environ, 0), EBADF);
	assert_errno(execveat(AT_FDCWD, child, argv, environ, 0x400000), EINVAL);

	unlink(path);
	unlink(loop);
	rmdir(dir);
}

/* A file that nobody may execute, and one without a known format, come first in PATH. */
static void EXEC_execvp_goes_on_and_falls_back(void **state)
{
	char dir[] = "/tmp/pollux-exec.XXXXXX", file[4096], search[8192], said[4096];
	char *argv[] = {(char *)CHILD, NULL};
	pid_t pid;
	int fd;

	(void)state;
	/* A sanitized drop-in cannot be loaded into the shell, which is not sanitized. */
	if (SANITIZED && under_pollux())
		SKIP("the shell is not sanitized");
	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/" CHILD, dir);
	snprintf(search, sizeof(search), "%s:%s", dir, folder);
	path_set(search);
	fd = (int)assert_ok(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	assert_int_equal(write(fd, "exit 37\n", 8), 8);
	close(fd);
	run_child(EXECVP, child, CHILD, environ, said, sizeof(said));
	assert_string_equal(strrchr(said, ' '), " -\n");
	assert_ok(chmod(file, 0755));
	pid = (pid_t)assert_ok(fork());
	if (pid == 0) {
		execvp(CHILD, argv);
		_exit(127);
	}
	assert_int_equal(child_end(pid), 37);
	/* posix_spawnp does not. */
	assert_int_equal(posix_spawnp(&pid, CHILD, NULL, NULL, argv, environ), ENOEXEC);
	path_reset();
	unlink(file);
	rmdir(dir);
}

static void EXEC_without_free_descriptors(void **state)
{
	char *argv[] = {(char *)CHILD, NULL};
	pid_t pid;

	(void)state;
	/* It cannot be judged, so it gets the drop-in. */
	if (SANITIZED && under_pollux())
		SKIP("the program that is started is not sanitized");
	pid = (pid_t)assert_ok(fork());
	if (pid == 0) {
		struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
		int null = open("/dev/null", O_WRONLY);

		if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || setrlimit(RLIMIT_NOFILE, &few))
			_exit(1);
		while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
			;
		if (errno != EMFILE)
			_exit(2);
		execve(child, argv, environ);
		_exit(127);
	}
	assert_int_equal(child_end(pid), 0);
}

/* After a filter no call is made that the program has not asked for. */
static void EXEC_under_a_filter(void **state)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 3),
		/* The loader asks about descriptors alone. */
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AT_EMPTY_PATH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
	char *argv[] = {(char *)CHILD, NULL};

	(void)state;
	if (SANITIZED && under_pollux())
		SKIP("the program that is started is not sanitized");
	for (int way = 0; way < 2; way++) {
		pid_t pid = (pid_t)assert_ok(fork());

		if (pid == 0) {
			int null = open("/dev/null", O_WRONLY);

			if (null < 0 || dup2(null, STDOUT_FILENO) < 0 ||
			    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
				_exit(1);
			if (way ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)
				: prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
				_exit(EXIT_SKIPPED);
			execve(child, argv, environ);
			_exit(127);
		}
		assert_child(child_end(pid), "the kernel takes no filter");
	}
}

struct loop {
	struct test_thread t;
	int failed;
};

static void *spawn_loop(void *arg)
{
	struct loop *l = arg;
	char *argv[] = {(char *)CHILD, NULL};

	for (int i = 0; i < 8; i++) {
		posix_spawn_file_actions_t fa;
		pid_t pid;

		posix_spawn_file_actions_init(&fa);
		posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
		if (posix_spawn(&pid, child, &fa, NULL, argv, environ) || child_end(pid) != 0)
			l->failed++;
		posix_spawn_file_actions_destroy(&fa);
	}
	return NULL;
}

static void EXEC_from_several_threads(void **state)
{
	struct loop l[3] = {0};

	(void)state;
	for (int i = 0; i < 3; i++)
		thread_start(&l[i].t, spawn_loop, &l[i]);
	for (int i = 0; i < 3; i++) {
		assert_true(thread_join(&l[i].t, 50000));
		assert_int_equal(l[i].failed, 0);
	}
}

/*
 * Looking at a program takes a number for a moment. Another thread finds its own where it left
 * them: the lowest free one free, and what it puts there still there afterwards.
 */
static uint32_t numbers_end;

static void *numbers_loop(void *arg)
{
	int fd = (int)assert_ok(open("/dev/null", O_RDONLY)), next = (int)assert_ok(dup(fd));
	struct loop *l = arg;

	close(next);
	while (!__atomic_load_n(&numbers_end, __ATOMIC_RELAXED)) {
		int got = dup(fd);

		if (got != next)
			l->failed++;
		close(got);
		dup2(fd, next);
		for (volatile int i = 0; i < 200; i++)
			;
		if (close(next))
			l->failed++;
	}
	close(fd);
	return NULL;
}

/* A copy of the child of which nothing is remembered: each time another one, by its times. */
static void copy_child(char *path)
{
	char command[8300];

	assert_non_null(mkdtemp(path));
	strcat(path, "/copy");
	snprintf(command, sizeof(command), "cp '%s' '%s'", child, path);
	assert_int_equal(system(command), 0);
}

static void new_times(const char *path, int i)
{
	const struct timespec times[2] = {{.tv_sec = i}, {.tv_sec = i}};

	assert_ok(utimensat(AT_FDCWD, path, times, 0));
}

static void remove_copy(char *path)
{
	assert_ok(unlink(path));
	*strrchr(path, '/') = '\0';
	assert_ok(rmdir(path));
}

static void EXEC_takes_no_number_from_other_threads(void **state)
{
	char path[64] = "/tmp/pollux-exec.XXXXXX", *argv[] = {(char *)CHILD, NULL};
	posix_spawn_file_actions_t fa;
	struct loop l = {0};

	(void)state;
	if (SANITIZED == 2 && under_pollux())
		SKIP("the program that is started is not sanitized");
	copy_child(path);
	assert_int_equal(posix_spawn_file_actions_init(&fa), 0);
	posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	thread_start(&l.t, numbers_loop, &l);
	for (int i = 0; i < 200; i++) {
		pid_t pid;

		new_times(path, i);
		assert_int_equal(posix_spawn(&pid, path, &fa, NULL, argv, environ), 0);
		assert_int_equal(child_end(pid), 0);
	}
	__atomic_store_n(&numbers_end, 1, __ATOMIC_RELAXED);
	assert_true(thread_join(&l.t, 50000));
	assert_int_equal(l.failed, 0);
	posix_spawn_file_actions_destroy(&fa);
	remove_copy(path);
}

/* Nor does it keep one if a handler jumps out of the call. */
static sigjmp_buf out_of_exec;
static volatile sig_atomic_t in_exec;

static void jump(int sig)
{
	(void)sig;
	if (in_exec)
		siglongjmp(out_of_exec, 1);
}

static void EXEC_that_is_left_by_a_jump_keeps_no_number(void **state)
{
	char path[64] = "/tmp/pollux-exec.XXXXXX", *argv[] = {NULL, NULL};
	struct itimerval often = {.it_interval.tv_usec = 150, .it_value.tv_usec = 150}, never = {0};
	struct sigaction act = {.sa_handler = jump}, old;
	const size_t too_long = 200000;
	volatile int jumps = 0;
	int lowest;

	(void)state;
	if (SANITIZED == 2)
		SKIP("this sanitizer runs handlers where it likes");
	copy_child(path);
	/* What makes it fail is found out late. */
	argv[0] = calloc(1, too_long);
	memset(argv[0], 'a', too_long - 1);
	lowest = (int)assert_ok(dup(STDERR_FILENO));
	close(lowest);
	assert_ok(sigaction(SIGALRM, &act, &old));
	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
	for (volatile int i = 0; i < 2000; i++) {
		new_times(path, i);
		if (sigsetjmp(out_of_exec, 1)) {
			jumps++;
		} else {
			in_exec = 1;
			execve(path, argv, environ);
		}
		in_exec = 0;
	}
	assert_ok(setitimer(ITIMER_REAL, &never, NULL));
	assert_ok(sigaction(SIGALRM, &old, NULL));
	assert_true(jumps > 0);
	assert_int_equal(dup(STDERR_FILENO), lowest);
	close(lowest);
	free(argv[0]);
	remove_copy(path);
}

/* A handler executes while its thread does, in a process of two threads that has made nothing. */
static void execute_nothing(int sig)
{
	char *argv[] = {(char *)"x", NULL};

	(void)sig;
	in_exec++;
	execve("/nonexistent", argv, environ);
}

static void *sleep_on(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static int execs_in_handlers(void *arg)
{
	struct itimerval often = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100};
	struct sigaction act = {.sa_handler = execute_nothing};
	sigset_t alarm, old;
	pthread_t t;

	(void)arg;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	in_exec = 0;
	if (pthread_sigmask(SIG_BLOCK, &alarm, &old) || pthread_create(&t, NULL, sleep_on, NULL) ||
	    sigaction(SIGALRM, &act, NULL) || setitimer(ITIMER_REAL, &often, NULL) ||
	    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL))
		return 1;
	for (int64_t end = now_ms() + 400; now_ms() < end;)
		for (int i = 0; i < 100; i++)
			execute_nothing(0);
	return in_exec ? 0 : 2;
}

static void EXEC_from_a_handler_that_interrupts_one(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("this sanitizer runs handlers where it likes");
	assert_int_equal(child_status(execs_in_handlers, NULL), 0);
}

/* A libc that does not have them says so by their result, as for all errors. */
static void EXEC_pidfd_spawn_returns_the_number_of_its_error(void **state)
{
	typedef int (*spawn_t)(int *, const char *, const posix_spawn_file_actions_t *,
			       const posix_spawnattr_t *, char *const[], char *const[]);
	const char *name[] = {"pidfd_spawn", "pidfd_spawnp"};
	char *argv[] = {(char *)CHILD, NULL};

	(void)state;
	for (int i = 0; i < 2; i++) {
		spawn_t spawn = (spawn_t)dlsym(RTLD_DEFAULT, name[i]);
		int pidfd = -1, r;

		if (!spawn)
			SKIP("libc has no %s", name[i]);
		r = spawn(&pidfd, "/no/such/program", NULL, NULL, argv, environ);
		assert_true(r == ENOENT || r == ENOSYS);
	}
}

static void copy_to(int to, const char *name)
{
	int from = (int)assert_ok(open(name, O_RDONLY | O_CLOEXEC));
	char buf[65536];
	ssize_t n;

	while ((n = assert_ok(read(from, buf, sizeof(buf)))) > 0)
		assert_int_equal(write(to, buf, n), n);
	close(from);
}

/* Somebody has to permit that the file is opened, and does not say anything. */
static void EXEC_a_signal_ends_one_that_waits_for_its_file(void **state)
{
	char path[] = "/tmp/exec-XXXXXX";
	struct fanotify_event_metadata event;
	int fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC), file, status;
	pid_t pid, ended = 0;

	(void)state;
	if (fd < 0)
		SKIP("fanotify: %s", strerror(errno));
	file = (int)assert_ok(mkstemp(path));
	copy_to(file, child);
	close(file);
	assert_ok(chmod(path, 0755));
	if (fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path)) {
		unlink(path);
		close(fd);
		SKIP("a permission of fanotify: %s", strerror(errno));
	}
	pid = (pid_t)assert_ok(fork());
	if (!pid) {
		close(fd);
		execl(path, CHILD, (char *)NULL);
		_exit(97);
	}
	/* It waits now. */
	assert_int_equal(read(fd, &event, sizeof(event)), sizeof(event));
	close(event.fd);
	assert_ok(kill(pid, SIGTERM));
	for (int64_t end = now_ms() + 20000; !ended && now_ms() < end; sleep_ms(1))
		ended = waitpid(pid, &status, WNOHANG);
	/* Whoever still waits gets it. */
	close(fd);
	unlink(path);
	assert_int_equal(ended, pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(EXEC_a_program_without_use_for_it_is_started_plain),
		cmocka_unit_test(EXEC_an_environment_of_its_own),
		cmocka_unit_test(EXEC_a_relative_path_starts_where_the_program_does),
		cmocka_unit_test(EXEC_errors),
		cmocka_unit_test(EXEC_execvp_goes_on_and_falls_back),
		cmocka_unit_test(EXEC_without_free_descriptors),
		cmocka_unit_test(EXEC_under_a_filter),
		cmocka_unit_test(EXEC_from_several_threads),
		cmocka_unit_test(EXEC_takes_no_number_from_other_threads),
		cmocka_unit_test(EXEC_that_is_left_by_a_jump_keeps_no_number),
		cmocka_unit_test(EXEC_from_a_handler_that_interrupts_one),
		cmocka_unit_test(EXEC_pidfd_spawn_returns_the_number_of_its_error),
		cmocka_unit_test(EXEC_a_signal_ends_one_that_waits_for_its_file),
	};
	ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

	if (n <= 0)
		return 1;
	folder[n] = '\0';
	*strrchr(folder, '/') = '\0';
	snprintf(child, sizeof(child), "%s/" CHILD, folder);
	return run_group(tests);
}
