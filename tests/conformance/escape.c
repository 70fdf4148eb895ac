/* SPDX-License-Identifier: MIT */
/*
 * The ways in which a descriptor leaves the sight of a library: other
 * processes, other descriptors, the kernel's own hands. Afterwards counts,
 * registrations and pending events must be what they were, and every holder
 * must see what the others do.
 *
 * The program also runs as its own helper: with a first argument that begins
 * with "--" it does one step of a test in a new process image and ends with
 * status 0 if all was well.
 */
#include "waiting.h"

#include <dirent.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

extern char **environ;

/* For code that runs in other processes, where no cmocka failure may happen. */
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			check_failed(__LINE__, #cond);                                             \
			return __LINE__;                                                           \
		}                                                                                  \
	} while (0)

static void check_failed(int line, const char *what)
{
	char msg[256];
	int n = snprintf(msg, sizeof(msg), "escape.c:%d: not true in %d: %s (errno %d)\n", line,
			 (int)getpid(), what, errno);

	if (write(STDERR_FILENO, msg, (size_t)n) < 0)
		return;
}

static ssize_t put(int fd, uint64_t v)
{
	return write(fd, &v, sizeof(v));
}

/* What a read yields; UINT64_MAX when it fails. */
static uint64_t get(int fd)
{
	uint64_t v;

	return read(fd, &v, sizeof(v)) == sizeof(v) ? v : UINT64_MAX;
}

static short poll_now(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};

	return poll(&p, 1, 0) < 0 ? -1 : p.revents;
}

/*
 * One epoll with an item in every state there is. Letters are the data.
 *   a  count 5, nonblocking, level    ready
 *   b  semaphore of 3, edge           collected, nothing pending
 *   c  count 7, nonblocking, edge     pending
 *   d  count 2, oneshot               delivered, disarmed
 *   e  count 1, nonblocking, oneshot  pending
 *   f  count 0, nonblocking, level    not ready
 *   g  pipe with one byte, level      ready
 * They became ready in the order c, g, a, e.
 */
enum { WA, WB, WC, WD, WE, WF, WG, WORLD };

struct world {
	int ep;
	int fd[WORLD];
	int wr; /* the write end of g */
};

#define WORLD_FDS (WORLD + 2)

static int world_add(struct world *w, int i, uint32_t mode)
{
	return ep_ctl(w->ep, EPOLL_CTL_ADD, w->fd[i], EPOLLIN | mode, (uint64_t)('a' + i));
}

/* The letters that one collection yields, in order; "?" for anything odd. */
static const char *collected(struct world *w, char *got)
{
	struct epoll_event ev[16];
	int n = epoll_wait(w->ep, ev, 16, 0);

	for (int i = 0; i < n; i++)
		got[i] = ev[i].events == EPOLLIN ? (char)ev[i].data.u64 : '?';
	got[n < 0 ? 0 : n] = '\0';
	return got;
}

static const char *collected_sorted(struct world *w, char *got)
{
	size_t n;

	collected(w, got);
	n = strlen(got);
	for (size_t i = 0; i < n; i++) {
		for (size_t k = i + 1; k < n; k++) {
			if (got[k] < got[i]) {
				char t = got[i];

				got[i] = got[k];
				got[k] = t;
			}
		}
	}
	return got;
}

#define CHECK_SORTED(w, want)                                                                      \
	do {                                                                                       \
		char got_[17];                                                                     \
		if (strcmp(collected_sorted(w, got_), want) != 0) {                                \
			check_failed(__LINE__, got_);                                              \
			return __LINE__;                                                           \
		}                                                                                  \
	} while (0)

/* The same after an escape, which may report the edge of b once more. */
#define CHECK_SORTED_OR_B(w, want, want_with_b)                                                    \
	do {                                                                                       \
		char got_[17];                                                                     \
		collected_sorted(w, got_);                                                         \
		if (strcmp(got_, want) != 0 &&                                                     \
		    (strcmp(got_, want_with_b) != 0 || !edge_may_repeat((w)->fd[WB]))) {           \
			check_failed(__LINE__, got_);                                              \
			return __LINE__;                                                           \
		}                                                                                  \
	} while (0)

static int world_new(struct world *w)
{
	int p[2];

	w->ep = epoll_create1(0);
	w->fd[WA] = eventfd(5, EFD_NONBLOCK);
	w->fd[WB] = eventfd(3, EFD_SEMAPHORE);
	w->fd[WC] = eventfd(7, EFD_NONBLOCK);
	w->fd[WD] = eventfd(2, 0);
	w->fd[WE] = eventfd(1, EFD_NONBLOCK);
	w->fd[WF] = eventfd(0, EFD_NONBLOCK);
	CHECK(w->ep != -1 && w->fd[WF] != -1 && pipe(p) == 0);
	w->fd[WG] = p[0];
	w->wr = p[1];
	CHECK(world_add(w, WB, EPOLLET) == 0);
	CHECK(world_add(w, WD, EPOLLONESHOT) == 0);
	CHECK(world_add(w, WF, 0) == 0);
	CHECK_SORTED(w, "bd");
	CHECK(world_add(w, WC, EPOLLET) == 0);
	CHECK(world_add(w, WG, 0) == 0);
	CHECK(write(w->wr, "x", 1) == 1);
	CHECK(world_add(w, WA, 0) == 0);
	CHECK(world_add(w, WE, EPOLLONESHOT) == 0);
	return 0;
}

/* Checks all of a new world; uses it up and leaves all items level and idle. */
static int world_check(struct world *w)
{
	char c;

	CHECK(fcntl(w->fd[WD], F_GETFL) == O_RDWR);
	CHECK(fcntl(w->fd[WF], F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK_SORTED_OR_B(w, "aceg", "abceg");
	CHECK_SORTED(w, "ag");
	/* The edge and the oneshot that were delivered before are as they were. */
	CHECK(put(w->fd[WB], 1) == 8);
	CHECK_SORTED(w, "abg");
	CHECK(put(w->fd[WD], 1) == 8);
	CHECK_SORTED(w, "ag");
	CHECK(ep_ctl(w->ep, EPOLL_CTL_MOD, w->fd[WD], EPOLLIN | EPOLLONESHOT, 'd') == 0);
	CHECK_SORTED(w, "adg");
	CHECK(put(w->fd[WF], 4) == 8);
	CHECK_SORTED(w, "afg");
	CHECK(ep_ctl(w->ep, EPOLL_CTL_ADD, w->fd[WC], EPOLLIN, 'c') == -1 && errno == EEXIST);

	CHECK(get(w->fd[WA]) == 5);
	for (int i = 0; i < 4; i++)
		CHECK(get(w->fd[WB]) == 1);
	CHECK(get(w->fd[WC]) == 7);
	CHECK(get(w->fd[WD]) == 3);
	CHECK(get(w->fd[WE]) == 1);
	CHECK(get(w->fd[WF]) == 4);
	CHECK(get(w->fd[WF]) == UINT64_MAX && errno == EAGAIN);
	CHECK(read(w->fd[WG], &c, 1) == 1 && c == 'x');
	for (int i = 0; i < WG; i++)
		CHECK(poll_now(w->fd[i]) == POLLOUT);
	CHECK_SORTED(w, "");

	CHECK(epoll_ctl(w->ep, EPOLL_CTL_DEL, w->fd[WC], NULL) == 0);
	CHECK(put(w->fd[WC], 9) == 8 && get(w->fd[WC]) == 9);
	CHECK(world_add(w, WC, 0) == 0);
	for (int i = 0; i < WORLD; i++)
		CHECK(ep_ctl(w->ep, EPOLL_CTL_MOD, w->fd[i], EPOLLIN, (uint64_t)('a' + i)) == 0);
	CHECK_SORTED(w, "");
	return 0;
}

/* Checks a world that world_check, here or elsewhere, has used up. */
static int world_check_used(struct world *w)
{
	char c;

	CHECK_SORTED(w, "");
	for (int i = 0; i < WG; i++)
		CHECK(put(w->fd[i], 1) == 8);
	CHECK(write(w->wr, "y", 1) == 1);
	CHECK_SORTED(w, "abcdefg");
	for (int i = 0; i < WG; i++)
		CHECK(get(w->fd[i]) == 1);
	CHECK(read(w->fd[WG], &c, 1) == 1 && c == 'y');
	CHECK_SORTED(w, "");
	return 0;
}

static void world_close(struct world *w)
{
	close(w->ep);
	for (int i = 0; i < WORLD; i++)
		close(w->fd[i]);
	close(w->wr);
}

static struct world world_made(void)
{
	struct world w = {0};

	assert_int_equal(world_new(&w), 0);
	return w;
}

static void world_cloexec(struct world *w)
{
	assert_ok(fcntl(w->ep, F_SETFD, FD_CLOEXEC));
	for (int i = 0; i < WORLD; i++)
		assert_ok(fcntl(w->fd[i], F_SETFD, FD_CLOEXEC));
	assert_ok(fcntl(w->wr, F_SETFD, FD_CLOEXEC));
}

static char self[4096];

/* The arguments with which a new image of this program finds the world. */
struct args {
	char text[WORLD_FDS][16];
	char *argv[WORLD_FDS + 3];
};

static char **args_make(struct args *a, const char *what, const struct world *w)
{
	int fds[WORLD_FDS];

	fds[0] = w->ep;
	memcpy(&fds[1], w->fd, sizeof(w->fd));
	fds[WORLD_FDS - 1] = w->wr;
	a->argv[0] = self;
	a->argv[1] = (char *)(uintptr_t)what;
	for (int i = 0; i < WORLD_FDS; i++) {
		snprintf(a->text[i], sizeof(a->text[i]), "%d", fds[i]);
		a->argv[i + 2] = a->text[i];
	}
	a->argv[WORLD_FDS + 2] = NULL;
	return a->argv;
}

static void args_line(char *line, size_t room, const char *what, const struct world *w)
{
	struct args a;
	size_t at = 0;

	args_make(&a, what, w);
	for (int i = 0; a.argv[i] != NULL; i++)
		at += (size_t)snprintf(line + at, room - at, "%s%s", i ? " " : "", a.argv[i]);
}

static bool world_parse(struct world *w, char **argv)
{
	int fds[WORLD_FDS];

	for (int i = 0; i < WORLD_FDS; i++) {
		if (argv[i] == NULL)
			return false;
		fds[i] = atoi(argv[i]);
	}
	w->ep = fds[0];
	memcpy(w->fd, &fds[1], sizeof(w->fd));
	w->wr = fds[WORLD_FDS - 1];
	return true;
}

enum exec_how { BY_EXECV, BY_EXECVE, BY_EXECVP, BY_EXECL, BY_FEXECVE, BY_EXECVEAT, BY_RAW, EXECS };

static void exec_self(enum exec_how how, char **argv)
{
	switch (how) {
	case BY_EXECVE:
		execve(self, argv, environ);
		break;
	case BY_EXECVP:
		execvp(self, argv);
		break;
	case BY_EXECL:
		execl(self, argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], argv[7],
		      argv[8], argv[9], argv[10], (char *)NULL);
		break;
	case BY_FEXECVE:
		fexecve(open(self, O_RDONLY | O_CLOEXEC), argv, environ);
		break;
	case BY_EXECVEAT:
		execveat(AT_FDCWD, self, argv, environ, 0);
		break;
	case BY_RAW:
		syscall(SYS_execve, self, argv, environ);
		break;
	default:
		execv(self, argv);
		break;
	}
}

struct exec_job {
	enum exec_how how;
	char **argv;
};

static void *exec_thread(void *arg)
{
	struct exec_job *j = arg;

	exec_self(j->how, j->argv);
	return NULL;
}

/* Makes a world and becomes a new image at once, with no fork in between. */
static int helper_make_exec(const char *how, bool thread)
{
	struct exec_job j = {.how = (enum exec_how)atoi(how)};
	struct world w;
	struct args a;
	pthread_t id;

	CHECK(world_new(&w) == 0);
	j.argv = args_make(&a, "--check", &w);
	if (thread) {
		CHECK(pthread_create(&id, NULL, exec_thread, &j) == 0);
		pthread_join(id, NULL);
	} else {
		exec_self(j.how, j.argv);
	}
	CHECK(!"exec returned");
	return 0;
}

/* A failed exec leaves everything as it was. */
static int helper_failed_exec(void)
{
	char *argv[] = {self, NULL};
	struct world w;

	CHECK(world_new(&w) == 0);
	CHECK(execv("/nonexistent/program", argv) == -1 && errno == ENOENT);
	CHECK(execv("/", argv) == -1);
	CHECK(execvp("no-such-program-anywhere", argv) == -1);
	CHECK(world_check(&w) == 0);
	return world_check_used(&w);
}

/* The grandchild that daemon() leaves behind tells through an eventfd of the test. */
static int helper_daemon(const char *report)
{
	struct world w;
	int fd = atoi(report);

	CHECK(world_new(&w) == 0);
	CHECK(daemon(1, 1) == 0);
	CHECK(put(fd, world_check(&w) == 0 && world_check_used(&w) == 0 ? 1 : 2) == 8);
	return 0;
}

/* One that stands where a standard stream reads or writes, by each way there is. */
static int helper_standard_streams(void)
{
	uint64_t v = 0;
	int e;

	CHECK(close(STDIN_FILENO) == 0);
	e = eventfd(5, EFD_NONBLOCK);
	CHECK(e == STDIN_FILENO);
	CHECK(fread(&v, sizeof(v), 1, stdin) == 1 && v == 5);
	CHECK(get(e) == UINT64_MAX && errno == EAGAIN);
	CHECK(close(e) == 0 && open("/dev/null", O_RDONLY) == STDIN_FILENO);
	for (int way = 0; way < 4; way++) {
		e = eventfd(6, EFD_NONBLOCK);
		if (way < 2)
			CHECK(close(STDOUT_FILENO) == 0);
		CHECK((way == 0	  ? dup(e)
		       : way == 1 ? fcntl(e, F_DUPFD, STDOUT_FILENO)
		       : way == 2 ? dup2(e, STDOUT_FILENO)
				  : dup3(e, STDOUT_FILENO, O_CLOEXEC)) == STDOUT_FILENO);
		v = 7;
		CHECK(fwrite(&v, sizeof(v), 1, stdout) == 1 && fflush(stdout) == 0);
		CHECK(get(e) == 13 && get(e) == UINT64_MAX);
		CHECK(close(e) == 0);
	}
	return 0;
}

/* libc reads and writes the number of a stream, whatever has been put there. */
static int helper_replaced_stream(void)
{
	for (int way = 0; way < 2; way++) {
		FILE *f = fopen("/dev/null", "r+");
		int e = eventfd(6, EFD_NONBLOCK), ep = epoll_create1(0), number;
		uint64_t v = 0;

		CHECK(f != NULL);
		setvbuf(f, NULL, _IONBF, 0);
		number = fileno(f);
		CHECK(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 4) == 0);
		CHECK((way ? dup3(e, number, O_CLOEXEC) : dup2(e, number)) == number);
		CHECK(fread(&v, sizeof(v), 1, f) == 1 && v == 6);
		CHECK(get(e) == UINT64_MAX && errno == EAGAIN);
		v = 7;
		CHECK(fwrite(&v, sizeof(v), 1, f) == 1);
		CHECK(ep_one(ep, EPOLLIN, 4) && get(e) == 7);
		CHECK(fclose(f) == 0 && fcntl(number, F_GETFD) == -1);
		CHECK(close(ep) == 0 && close(e) == 0);
	}
	return 0;
}

static struct {
	int go[2], back[2], fd[2];
} meanwhile;

static void *make_meanwhile(void *unused)
{
	char c;

	(void)unused;
	if (read(meanwhile.go[0], &c, 1) != 1)
		return (void *)1;
	for (int i = 0; i < 2; i++)
		meanwhile.fd[i] = eventfd(0, EFD_NONBLOCK);
	return (void *)(intptr_t)(write(meanwhile.back[1], "b", 1) != 1);
}

/* The child of a vfork forks; another thread has made what the child has no descriptor of. */
static int helper_vfork_fork(void)
{
	pthread_t t;
	pid_t pid;
	void *r;

	CHECK(pipe(meanwhile.go) == 0 && pipe(meanwhile.back) == 0);
	CHECK(pthread_create(&t, NULL, make_meanwhile, NULL) == 0);
	pid = vfork();
	if (pid == 0) {
		char c;
		pid_t next;

		if (write(meanwhile.go[1], "a", 1) != 1 || read(meanwhile.back[0], &c, 1) != 1)
			_exit(1);
		next = fork();
		if (next == 0)
			_exit(0);
		_exit(next == -1 || waitpid(next, NULL, 0) != next);
	}
	CHECK(pid > 0 && child_end(pid) == 0);
	CHECK(pthread_join(t, &r) == 0 && r == NULL);
	CHECK(put(meanwhile.fd[0], 3) == 8);
	CHECK(get(meanwhile.fd[1]) == UINT64_MAX && errno == EAGAIN);
	CHECK(get(meanwhile.fd[0]) == 3);
	return 0;
}

/* libc closes the number that it knows, whatever that has come to mean. */
static int helper_closedir(void)
{
	DIR *d = opendir("/");
	uint64_t v = 1;
	int fd;

	CHECK(d != NULL);
	fd = dirfd(d);
	CHECK(close(fd) == 0 && eventfd(3, EFD_NONBLOCK) == fd);
	CHECK(closedir(d) == 0);
	CHECK(read(fd, &v, sizeof(v)) == -1 && errno == EBADF);
	CHECK(open("/dev/zero", O_RDONLY) == fd);
	CHECK(read(fd, &v, sizeof(v)) == sizeof(v) && v == 0);
	return 0;
}

#define SOFT_LIMIT 1000

static int helper_soft_limit(void)
{
	struct rlimit lim;

	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur == SOFT_LIMIT);
	return 0;
}

static void *make_epolls(void *stop)
{
	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		int ep = epoll_create1(EPOLL_CLOEXEC), fd = eventfd(0, EFD_CLOEXEC);

		ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1);
		close(fd);
		close(ep);
	}
	return NULL;
}

/* While another thread makes epolls the limit is what the program has set, for what is started,
 * too.
 */
static int helper_limit_of_children(void)
{
	char *argv[] = {(char *)self, (char *)"--soft-limit", NULL};
	struct rlimit lim, now;
	pthread_t t;
	int stop = 0;

	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	if (lim.rlim_max < 8000)
		return EXIT_SKIPPED;
	lim.rlim_cur = SOFT_LIMIT;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	/* What a library does with the first of them is not looked at here. */
	CHECK(close(eventfd(0, EFD_CLOEXEC)) == 0);
	CHECK(pthread_create(&t, NULL, make_epolls, &stop) == 0);
	for (int i = 0; i < (SANITIZED ? 200 : 4000); i++) {
		lim.rlim_cur = SOFT_LIMIT - i % 4;
		CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
		CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == lim.rlim_cur);
	}
	lim.rlim_cur = SOFT_LIMIT;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	for (int i = 0; i < (SANITIZED ? 60 : 300); i++) {
		pid_t pid;

		if (i % 2) {
			CHECK(posix_spawn(&pid, self, NULL, NULL, argv, environ) == 0);
		} else {
			pid = vfork();
			if (pid == 0) {
				execv(self, argv);
				_exit(127);
			}
		}
		CHECK(pid > 0 && child_end(pid) == 0);
	}
	/* The shell is not sanitized. */
	CHECK(SANITIZED || system("test $(ulimit -n) -eq 1000") == 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK(pthread_join(t, NULL) == 0);
	return helper_soft_limit();
}

/* All descriptors of the world but the write end of the pipe are closed here. */
static int helper_closed(struct world *w)
{
	CHECK(fcntl(w->ep, F_GETFD) == -1 && errno == EBADF);
	for (int i = 0; i < WORLD; i++)
		CHECK(fcntl(w->fd[i], F_GETFD) == -1 && errno == EBADF);
	return 0;
}

/* The epoll came through exec, the eventfds did not, but their files live on. */
static int helper_only_epoll(struct world *w)
{
	for (int i = 0; i < WG; i++)
		CHECK(fcntl(w->fd[i], F_GETFD) == -1 && errno == EBADF);
	CHECK_SORTED_OR_B(w, "aceg", "abceg");
	CHECK_SORTED(w, "ag");
	CHECK(epoll_ctl(w->ep, EPOLL_CTL_DEL, w->fd[WA], NULL) == -1 && errno == EBADF);
	return 0;
}

/*
 * Forks of a process that has never had a second thread: there is nothing to be done for
 * those that find everything shared already. Each test is a program of its own.
 */
static int helper_fork_shared(void)
{
	struct world w, mine;
	pid_t pid;

	CHECK(world_new(&w) == 0);
	CHECK((pid = fork_bounded()) >= 0);
	if (pid == 0)
		_exit(0);
	CHECK(child_end(pid) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK((pid = fork_bounded()) >= 0);
		if (pid == 0) {
			if (i == 0 && world_check(&w) != 0)
				_exit(1);
			if (world_new(&mine) != 0 || world_check(&mine) != 0)
				_exit(2);
			world_close(&mine);
			_exit(world_check_used(&w) != 0);
		}
		CHECK(child_end(pid) == 0);
		CHECK(world_check_used(&w) == 0);
	}
	CHECK(world_new(&mine) == 0 && world_check(&mine) == 0);
	CHECK((pid = fork_bounded()) >= 0);
	if (pid == 0)
		_exit(world_check_used(&mine) != 0 || world_check_used(&w) != 0);
	CHECK(child_end(pid) == 0);
	CHECK(world_check_used(&mine) == 0);
	return 0;
}

static struct {
	bool wanted;
	struct world prepared, parent, child;
	int failed;
} at_fork;

static void at_fork_prepare(void)
{
	if (at_fork.wanted)
		at_fork.failed = world_new(&at_fork.prepared);
}

static void at_fork_parent(void)
{
	if (at_fork.wanted && world_new(&at_fork.parent) != 0)
		at_fork.failed = __LINE__;
}

static void at_fork_child(void)
{
	if (at_fork.wanted && (world_new(&at_fork.child) != 0 || world_check(&at_fork.child) != 0))
		at_fork.failed = __LINE__;
}

/*
 * A library that the program is linked with may register its handlers in its constructor, before
 * that of a drop-in has run. So may what comes before all constructors. (ThreadSanitizer's run-time
 * would not be ready for it.)
 */
#if SANITIZED != 2
static bool early;

static void early_prepare(void)
{
	if (early)
		at_fork_prepare();
}

static void early_parent(void)
{
	if (early)
		at_fork_parent();
}

static void early_child(void)
{
	if (early)
		at_fork_child();
}

static void register_early(void)
{
	if (pthread_atfork(early_prepare, early_parent, early_child) != 0)
		abort();
}

static void (*const before_all[])(void)
	__attribute__((section(".preinit_array"), used)) = {register_early};
#endif

static int helper_fork_atfork(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t pid;

		at_fork.wanted = true;
		CHECK((pid = fork_bounded()) >= 0);
		at_fork.wanted = false;
		if (pid == 0) {
			if (at_fork.failed || world_check(&at_fork.prepared) != 0)
				_exit(1);
			_exit(world_check_used(&at_fork.child) != 0);
		}
		CHECK(child_end(pid) == 0);
		CHECK(at_fork.failed == 0);
		CHECK(world_check_used(&at_fork.prepared) == 0);
		CHECK(world_check(&at_fork.parent) == 0);
		world_close(&at_fork.prepared);
		world_close(&at_fork.parent);
		/* Then one that has nothing new to share. */
		CHECK((pid = fork_bounded()) >= 0);
		if (pid == 0)
			_exit(0);
		CHECK(child_end(pid) == 0);
	}
	return 0;
}

/*
 * A wait for sockets and eventfds, edge-triggered: what has not been collected is reported, also
 * where the kernel's list of registrations is out of reach.
 */
static int helper_fork_no_proc(void)
{
	struct epoll_event ev[8];
	int ep = epoll_create1(0), alone = epoll_create1(0), sv[2], e, once;
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	e = eventfd(1, EFD_NONBLOCK);
	once = eventfd(1, EFD_NONBLOCK);
	CHECK(ep != -1 && alone != -1 && e != -1 && once != -1);
	CHECK(ep_ctl(alone, EPOLL_CTL_ADD, e, EPOLLIN | EPOLLET, 1) == 0);
	CHECK(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN | EPOLLET, 1) == 0);
	CHECK(ep_ctl(ep, EPOLL_CTL_ADD, once, EPOLLIN | EPOLLONESHOT, 2) == 0);
	CHECK(ep_ctl(ep, EPOLL_CTL_ADD, sv[0], EPOLLIN | EPOLLET, 3) == 0);
	CHECK(epoll_wait(ep, ev, 8, 0) == 2 && epoll_wait(alone, ev, 8, 0) == 1);
	if (chroot("/proc/self/task") != 0 || chdir("/") != 0)
		return errno == EPERM ? EXIT_SKIPPED : __LINE__;
	CHECK(write(sv[1], "x", 1) == 1);
	CHECK((pid = fork_bounded()) >= 0);
	if (pid == 0)
		_exit(0);
	CHECK(child_end(pid) == 0);
	/* A library may report an edge twice, rather than lose another. */
	CHECK(epoll_wait(alone, ev, 8, 0) <= edge_may_repeat(e));
	CHECK(ep_one_and_repeat(ep, 3, e, 1));
	CHECK(epoll_wait(alone, ev, 8, 0) == 0 && epoll_wait(ep, ev, 8, 0) == 0);
	CHECK(put(e, 1) == 8 && put(once, 1) == 8 && write(sv[1], "x", 1) == 1);
	CHECK(epoll_wait(ep, ev, 8, 0) == 2);
	CHECK(ep_ctl(ep, EPOLL_CTL_MOD, once, EPOLLIN | EPOLLONESHOT, 2) == 0);
	CHECK(epoll_wait(ep, ev, 8, 0) == 1 && ev[0].data.u64 == 2);
	return 0;
}

static struct {
	int efd, status;
} in_handler;

static void fork_in_handler(int sig)
{
	pid_t pid = fork();

	(void)sig;
	if (pid == 0)
		_exit(put(in_handler.efd, 2) == 8 ? 7 : 1);
	in_handler.status = pid > 0 ? child_end(pid) : -1;
}

/* The handler interrupts a wait for what is shared already. */
static int helper_fork_in_wait(void)
{
	struct sigaction act = {.sa_handler = fork_in_handler};
	struct epoll_event ev;
	sigset_t block, was;
	int ep = epoll_create1(0);

	in_handler.efd = eventfd(0, EFD_NONBLOCK);
	CHECK(ep_ctl(ep, EPOLL_CTL_ADD, in_handler.efd, EPOLLIN, 5) == 0);
	CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &block, &was) == 0);
	for (int i = 0; i < 3; i++) {
		pid_t pid;

		in_handler.status = -1;
		CHECK(raise(SIGUSR1) == 0);
		CHECK(epoll_pwait(ep, &ev, 1, -1, &was) == -1 && errno == EINTR);
		CHECK(in_handler.status == 7);
		CHECK(epoll_wait(ep, &ev, 1, -1) == 1 && ev.data.u64 == 5);
		CHECK(get(in_handler.efd) == 2);
		CHECK(epoll_wait(ep, &ev, 1, 0) == 0);
		CHECK((pid = fork_bounded()) >= 0);
		if (pid == 0)
			_exit(0);
		CHECK(child_end(pid) == 0);
	}
	return 0;
}

static int highest_number(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *entry;
	int highest = -1;

	while (d && (entry = readdir(d)))
		if (atoi(entry->d_name) > highest)
			highest = atoi(entry->d_name);
	if (d)
		closedir(d);
	return highest;
}

/*
 * The kernel copies its table of descriptors up to the highest number: once everything is shared,
 * a fork finds no number but the program's. (Where signals are not kept, a library may have some.)
 */
static int helper_fork_numbers(void)
{
	for (int i = 0; i < 2; i++) {
		/* It sees the folder's own number, too. */
		int highest = highest_number() + 2;
		int ep = epoll_create1(0), e = eventfd(1, EFD_NONBLOCK);
		struct epoll_event ev;
		pid_t pid;

		CHECK(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 5) == 0);
		CHECK((pid = fork_bounded()) >= 0);
		if (pid == 0)
			_exit(SANITIZED == 2 || highest_number() <= highest ? 7 : 1);
		CHECK(child_end(pid) == 7);
		CHECK(SANITIZED == 2 || highest_number() <= highest);
		CHECK(epoll_wait(ep, &ev, 1, 0) == 1 && ev.data.u64 == 5);
		CHECK(get(e) == 1);
	}
	return 0;
}

static int helper_limit_by_thread(void);

static int helper(int argc, char **argv)
{
	struct world w;

	if (strcmp(argv[1], "--make-exec") == 0 && argc == 3)
		return helper_make_exec(argv[2], false);
	if (strcmp(argv[1], "--make-exec-thread") == 0 && argc == 3)
		return helper_make_exec(argv[2], true);
	if (strcmp(argv[1], "--failed-exec") == 0)
		return helper_failed_exec();
	if (strcmp(argv[1], "--daemon") == 0 && argc == 3)
		return helper_daemon(argv[2]);
	if (strcmp(argv[1], "--standard-streams") == 0)
		return helper_standard_streams();
	if (strcmp(argv[1], "--replaced-stream") == 0)
		return helper_replaced_stream();
	if (strcmp(argv[1], "--vfork-fork") == 0)
		return helper_vfork_fork();
	if (strcmp(argv[1], "--closedir") == 0)
		return helper_closedir();
	if (strcmp(argv[1], "--limit-by-thread") == 0)
		return helper_limit_by_thread();
	if (strcmp(argv[1], "--soft-limit") == 0)
		return helper_soft_limit();
	if (strcmp(argv[1], "--limit-of-children") == 0)
		return helper_limit_of_children();
	if (strcmp(argv[1], "--fork-shared") == 0)
		return helper_fork_shared();
	if (strcmp(argv[1], "--fork-atfork") == 0) {
		CHECK(pthread_atfork(at_fork_prepare, at_fork_parent, at_fork_child) == 0);
		return helper_fork_atfork();
	}
#if SANITIZED != 2
	if (strcmp(argv[1], "--fork-atfork-early") == 0) {
		CHECK(world_new(&w) == 0);
		early = true;
		return helper_fork_atfork();
	}
#endif
	/* A sanitizer has no /proc to look for leaks in. */
	if (strcmp(argv[1], "--fork-no-proc") == 0)
		_exit(helper_fork_no_proc());
	if (strcmp(argv[1], "--fork-in-wait") == 0)
		return helper_fork_in_wait();
	if (strcmp(argv[1], "--fork-numbers") == 0)
		return helper_fork_numbers();
	CHECK(argc == WORLD_FDS + 2 && world_parse(&w, argv + 2));
	if (strcmp(argv[1], "--check") == 0)
		return world_check(&w);
	if (strcmp(argv[1], "--closed") == 0)
		return helper_closed(&w);
	if (strcmp(argv[1], "--only-epoll") == 0)
		return helper_only_epoll(&w);
	CHECK(!"known helper");
	return 0;
}

static int spawn_self(char **argv)
{
	pid_t pid;

	assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
	return child_end(pid);
}

/* ---- fork ---- */

static void ESCAPE_fork_child_has_all(void **state)
{
	struct world w = world_made();
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	(void)state;
	if (pid == 0)
		_exit(world_check(&w) != 0);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

static void ESCAPE_fork_parent_keeps_all(void **state)
{
	struct world w = world_made();
	int hold = efd_new(0, 0);
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	(void)state;
	if (pid == 0) {
		if (get(hold) != 1)
			_exit(1);
		_exit(world_check_used(&w) != 0);
	}
	assert_int_equal(world_check(&w), 0);
	efd_add(hold, 1);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	close(hold);
	world_close(&w);
}

static void ESCAPE_fork_keeps_the_ready_order(void **state)
{
	struct world w;
	char got[17];
	pid_t pid;

	(void)state;
	/* The world has a pipe among its eventfds. */
	NEEDS_ONE_ORDER(SET_MIXED);
	w = world_made();
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0)
		_exit(strcmp(collected(&w, got), "cgae") != 0 ||
		      strcmp(collected(&w, got), "ga") != 0);
	assert_int_equal(child_end(pid), 0);
	assert_string_equal(collected(&w, got), "ga");
	world_close(&w);
}

static void ESCAPE_fork_ready_order_of_eventfds_alone(void **state)
{
	struct subject s[6];
	int ep = ep_new();
	pid_t pid;

	(void)state;
	set_new(SET_EVENTFD, s, 6, ep, EPOLLIN);
	set_fire(s, "dbfeac");
	assert_order(ep, 2, "db");
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0)
		_exit(0);
	assert_int_equal(child_end(pid), 0);
	if (under_pollux())
		assert_int_equal(ep_count(ep), 6);
	else
		assert_order(ep, 16, "feacdb");
	set_close(s, 6);
	close(ep);
}

/* Two processes pass a token, each sleeping in read, then in epoll_wait. */
static void ESCAPE_fork_both_sides_talk(void **state)
{
	enum { TURNS = 500 };
	int there = efd_new(0, 0), back = efd_new(0, 0), ep = ep_new();
	struct epoll_event ev;
	pid_t pid;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, back, EPOLLIN | EPOLLET, 1));
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		int mine = epoll_create1(0);

		if (ep_ctl(mine, EPOLL_CTL_ADD, there, EPOLLIN, 2) != 0)
			_exit(1);
		for (uint64_t i = 1; i <= TURNS; i++) {
			if (i % 2 == 0 && epoll_wait(mine, &ev, 1, -1) != 1)
				_exit(2);
			if (get(there) != i || put(back, i) != 8)
				_exit(3);
		}
		_exit(0);
	}
	for (uint64_t i = 1; i <= TURNS; i++) {
		efd_add(there, i);
		if (i % 2 == 0)
			assert_int_equal(epoll_wait(ep, &ev, 1, SOON_MS), 1);
		assert_int_equal(efd_take(back), i);
		ep_count(ep);
	}
	assert_int_equal(child_end(pid), 0);
	close(there);
	close(back);
	close(ep);
}

static void ESCAPE_fork_of_a_fork(void **state)
{
	struct world w = world_made();
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	(void)state;
	if (pid == 0) {
		pid_t next = fork();

		if (next == 0)
			_exit(world_check(&w) != 0);
		if (next == -1 || child_end(next) != 0)
			_exit(1);
		_exit(world_check_used(&w) != 0);
	}
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

static void ESCAPE_fork_many_times(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		struct world w = world_made();

		for (int k = 0; k < 3; k++) {
			pid_t pid = (pid_t)assert_ok(fork_bounded());

			if (pid == 0)
				_exit(k);
			assert_int_equal(child_end(pid), k);
		}
		assert_int_equal(world_check(&w), 0);
		world_close(&w);
	}
}

static int helper_alone(const char *what)
{
	char *argv[] = {(char *)self, (char *)what, NULL};

	return spawn_self(argv);
}

/* The same of one that starts hundreds of programs. The watchdog knows how busy the machine is. */
static int helper_at_length(const char *what)
{
	char *argv[] = {(char *)self, (char *)what, NULL};
	pid_t pid;
	int st;

	assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
	st = child_wait(pid);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static void ESCAPE_fork_when_all_is_shared(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--fork-shared"), 0);
}

static void ESCAPE_fork_with_handlers_that_make_objects(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--fork-atfork"), 0);
}

static void ESCAPE_fork_with_handlers_from_before_the_start(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer's run-time is not ready then");
	assert_int_equal(helper_alone("--fork-atfork-early"), 0);
}

static void ESCAPE_fork_by_a_handler_in_a_wait(void **state)
{
	(void)state;
	if (SANITIZED == 2 && under_pollux())
		SKIP("ThreadSanitizer's allocator is none for handlers");
	assert_int_equal(helper_alone("--fork-in-wait"), 0);
}

static void ESCAPE_fork_without_proc_loses_no_edge(void **state)
{
	(void)state;
	assert_child(helper_alone("--fork-no-proc"), "chroot is not permitted");
}

static void ESCAPE_fork_leaves_only_numbers_of_the_program(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--fork-numbers"), 0);
}

/* What is made after the fork is nobody else's business. */
static void ESCAPE_fork_then_each_side_makes_its_own(void **state)
{
	int before = efd_new(0, 0);
	pid_t pid = (pid_t)assert_ok(fork_bounded());
	struct world w;

	(void)state;
	if (pid == 0) {
		if (world_new(&w) != 0 || world_check(&w) != 0 || world_check_used(&w) != 0)
			_exit(1);
		_exit(put(before, 1) != 8);
	}
	w = world_made();
	assert_int_equal(world_check(&w), 0);
	assert_int_equal(world_check_used(&w), 0);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(efd_take(before), 1);
	world_close(&w);
	close(before);
}

static void ESCAPE_fork_close_in_one_process_only(void **state)
{
	struct world w = world_made();
	int gone = efd_new(0, 0), go = efd_new(0, 0);
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	(void)state;
	if (pid == 0) {
		/* The parent has closed all of it; the files live on here. */
		if (get(go) != 1)
			_exit(1);
		_exit(world_check(&w) != 0 || world_check_used(&w) != 0);
	}
	world_close(&w);
	efd_add(go, 1);
	assert_int_equal(child_end(pid), 0);

	/* And the other way round: the child closes, the parent keeps. */
	w = world_made();
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		world_close(&w);
		_exit(put(gone, 1) != 8);
	}
	assert_int_equal(efd_take(gone), 1);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
	close(gone);
	close(go);
}

static void ESCAPE_fork_with_nested_epolls(void **state)
{
	struct world w = world_made();
	int outer = ep_new(), edge = ep_new();
	pid_t pid;

	(void)state;
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, w.ep, EPOLLIN, 1));
	assert_ok(ep_ctl(edge, EPOLL_CTL_ADD, w.ep, EPOLLIN | EPOLLET, 2));
	assert_true(ep_one(edge, EPOLLIN, 2));
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		if (!ep_one(outer, EPOLLIN, 1) || ep_count(edge) != 0)
			_exit(1);
		if (put(w.fd[WA], 0) != 8 || !ep_one(edge, EPOLLIN, 2))
			_exit(2);
		if (world_check(&w) != 0 || ep_count(outer) != 0)
			_exit(3);
		_exit(0);
	}
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(ep_count(outer), 0);
	ep_count(edge);
	assert_int_equal(world_check_used(&w), 0);
	efd_add(w.fd[WA], 1);
	assert_true(ep_one(outer, EPOLLIN, 1));
	assert_true(ep_one(edge, EPOLLIN, 2));
	close(outer);
	close(edge);
	world_close(&w);
}

static void ESCAPE_fork_at_the_top_of_the_counter(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = ep_new();
	pid_t pid;

	(void)state;
	efd_add(fd, COUNT_MAX);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLET, 1));
	assert_int_equal(ep_count(ep), 0);
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		if (poll_now(fd) != POLLIN || put(fd, 1) != -1 || errno != EAGAIN)
			_exit(1);
		if (get(fd) != COUNT_MAX || !ep_one(ep, EPOLLOUT, 1))
			_exit(2);
		_exit(put(fd, 11) != 8);
	}
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(efd_take(fd), 11);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	close(fd);
	close(ep);
}

/* An item whose own descriptor is closed, but whose file has another one. */
static void ESCAPE_fork_with_an_orphaned_item(void **state)
{
	int fd = efd_new(2, EFD_NONBLOCK), copy = (int)assert_ok(dup(fd)), ep = ep_new();
	pid_t pid;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 77));
	close(fd);
	assert_true(ep_one(ep, EPOLLIN, 77));
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0)
		_exit(!ep_one(ep, EPOLLIN, 77) || get(copy) != 2);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(ep_count(ep), 0);
	efd_add(copy, 1);
	assert_true(ep_one(ep, EPOLLIN, 77));
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, copy, 0, 0), ENOENT);
	close(copy);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
}

static pid_t raw_fork(int way)
{
	switch (way) {
	case 0:
		return _Fork();
	case 1:
		return (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, 0UL, 0UL, 0UL, 0UL);
	default:
#ifdef SYS_fork
		return (pid_t)syscall(SYS_fork);
#else
		return fork();
#endif
	}
}

static void ESCAPE_fork_by_other_names(void **state)
{
	(void)state;
	for (int way = 0; way < 3; way++) {
		struct world w = world_made();
		pid_t pid = (pid_t)assert_ok(raw_fork(way));

		if (pid == 0)
			_exit(world_check(&w) != 0);
		assert_int_equal(child_end(pid), 0);
		assert_int_equal(world_check_used(&w), 0);
		world_close(&w);
	}
}

static int clone_main(void *arg)
{
	return world_check(arg) != 0;
}

static void ESCAPE_clone(void **state)
{
	struct world w = world_made();
	size_t size = 1 << 20;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	(void)state;
	assert_true(stack != MAP_FAILED);
	pid = (pid_t)assert_ok(clone(clone_main, stack + size, SIGCHLD, &w));
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	munmap(stack, size);
	world_close(&w);
}

static void ESCAPE_daemon(void **state)
{
	int report = efd_new(0, 0);
	struct pollfd p = {.fd = report, .events = POLLIN};
	char number[16];
	char *argv[] = {self, "--daemon", number, NULL};

	(void)state;
	snprintf(number, sizeof(number), "%d", report);
	assert_int_equal(spawn_self(argv), 0);
	assert_int_equal(poll(&p, 1, SOON_MS), 1);
	assert_int_equal(efd_take(report), 1);
	close(report);
}

/* ---- threads that sleep while another thread forks ---- */

enum sleep_how {
	IN_READ,
	IN_READV,
	IN_WRITE,
	IN_POLL,
	IN_PPOLL,
	IN_SELECT,
	IN_PSELECT,
	IN_EPOLL,
	IN_EPOLL_MIXED,
	IN_EPOLL_OUTER,
	SLEEPS
};

/* In the object itself. */
static bool blocks(enum sleep_how how)
{
	return how == IN_READ || how == IN_READV || how == IN_WRITE;
}

struct sleeper {
	struct test_thread t;
	enum sleep_how how;
	int fd;
	int ep;
	bool ok;
};

static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	struct epoll_event ev;
	uint64_t v = 1;
	struct iovec iov = {.iov_base = &v, .iov_len = sizeof(v)};
	fd_set r;

	FD_ZERO(&r);
	FD_SET(s->fd, &r);
	switch (s->how) {
	case IN_READ:
		s->ok = read(s->fd, &v, sizeof(v)) == 8 && v == 1;
		break;
	case IN_READV:
		s->ok = readv(s->fd, &iov, 1) == 8 && v == 1;
		break;
	case IN_WRITE:
		s->ok = write(s->fd, &v, sizeof(v)) == 8;
		break;
	case IN_POLL:
		s->ok = poll(&p, 1, -1) == 1 && p.revents == POLLIN;
		break;
	case IN_PPOLL:
		s->ok = ppoll(&p, 1, NULL, NULL) == 1 && p.revents == POLLIN;
		break;
	case IN_SELECT:
		s->ok = select(s->fd + 1, &r, NULL, NULL, NULL) == 1;
		break;
	case IN_PSELECT:
		s->ok = pselect(s->fd + 1, &r, NULL, NULL, NULL, NULL) == 1;
		break;
	default:
		s->ok = epoll_wait(s->ep, &ev, 1, -1) == 1 && ev.data.u64 == 5;
		break;
	}
	return NULL;
}

/* writer: 0 the parent, 1 the child, 2 the parent after the child has ended. */
static void sleepers_and_fork(int writer)
{
	struct sleeper *s = calloc(SLEEPS, sizeof(*s));
	int fd[SLEEPS], inner[SLEEPS], p[2], go = efd_new(0, 0);
	pid_t pid;

	assert_ok(pipe(p));
	for (int i = 0; i < SLEEPS; i++) {
		int watched;

		fd[i] = efd_new(0, blocks((enum sleep_how)i) ? 0 : EFD_NONBLOCK);
		inner[i] = ep_new();
		watched = fd[i];
		s[i].how = (enum sleep_how)i;
		s[i].fd = fd[i];
		s[i].ep = ep_new();
		if (i == IN_WRITE)
			efd_add(fd[i], COUNT_MAX);
		if (i == IN_EPOLL_OUTER) {
			assert_ok(ep_ctl(inner[i], EPOLL_CTL_ADD, fd[i], EPOLLIN, 6));
			watched = inner[i];
		}
		assert_ok(ep_ctl(s[i].ep, EPOLL_CTL_ADD, watched, EPOLLIN, 5));
		if (i == IN_EPOLL_MIXED)
			assert_ok(ep_ctl(s[i].ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 7));
		thread_start(&s[i].t, sleeper_main, &s[i]);
		assert_true(thread_asleep(&s[i].t));
	}
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		if (writer == 2)
			_exit(0);
		if (get(go) != 1)
			_exit(1);
		for (int i = 0; writer == 1 && i < SLEEPS; i++)
			if ((i == IN_WRITE ? get(fd[i]) != COUNT_MAX : put(fd[i], 1) != 8))
				_exit(2);
		_exit(0);
	}
	if (writer == 2)
		assert_int_equal(child_end(pid), 0);
	/* The fork alone wakes nobody for good. */
	sleep_ms(QUIET_MS);
	for (int i = 0; i < SLEEPS; i++)
		assert_true(thread_asleep(&s[i].t));
	for (int i = 0; writer != 1 && i < SLEEPS; i++) {
		if (i == IN_WRITE)
			assert_int_equal(efd_take(fd[i]), COUNT_MAX);
		else
			efd_add(fd[i], 1);
	}
	if (writer != 2) {
		efd_add(go, 1);
		assert_int_equal(child_end(pid), 0);
	}
	for (int i = 0; i < SLEEPS; i++) {
		if (!thread_join(&s[i].t, SOON_MS)) {
			print_error("sleeper %d was not woken\n", i);
			fail();
		}
		assert_true(s[i].ok);
		if (i != IN_READ && i != IN_READV)
			assert_int_equal(efd_take(fd[i]), 1);
		close(s[i].ep);
		close(inner[i]);
		close(fd[i]);
	}
	free(s);
	close(go);
	close(p[0]);
	close(p[1]);
}

static void ESCAPE_fork_beside_sleepers_woken_by_the_parent(void **state)
{
	(void)state;
	sleepers_and_fork(0);
}

static void ESCAPE_fork_beside_sleepers_woken_by_the_child(void **state)
{
	(void)state;
	sleepers_and_fork(1);
}

static void ESCAPE_fork_beside_sleepers_woken_after_the_child(void **state)
{
	(void)state;
	sleepers_and_fork(2);
}

static pid_t child_of_nothing(void)
{
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	if (pid == 0)
		_exit(0);
	return pid;
}

/* The number is another file's when the object leaves; the call goes on with its own. */
static void sleeper_and_number(enum sleep_how how)
{
	struct sleeper s = {.how = how, .fd = efd_new(0, blocks(how) ? 0 : EFD_NONBLOCK)};
	int other = (int)assert_ok(dup(s.fd)), null;

	s.ep = other;
	if (how == IN_WRITE)
		efd_add(other, COUNT_MAX);
	thread_start(&s.t, sleeper_main, &s);
	assert_true(thread_asleep(&s.t));
	assert_ok(close(s.fd));
	null = (int)assert_ok(open("/dev/zero", O_RDWR | O_CLOEXEC));
	assert_int_equal(null, s.fd);
	assert_int_equal(child_end(child_of_nothing()), 0);
	sleep_ms(QUIET_MS);
	assert_true(thread_asleep(&s.t));
	if (how == IN_WRITE)
		assert_int_equal(efd_take(other), COUNT_MAX);
	else
		efd_add(other, 1);
	assert_true(thread_join(&s.t, SOON_MS));
	assert_true(s.ok);
	if (how == IN_WRITE)
		assert_int_equal(efd_take(other), 1);
	close(null);
	close(other);
}

static void ESCAPE_fork_beside_a_reader_whose_number_is_anothers(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("for ThreadSanitizer the two files at one number are one");
	sleeper_and_number(IN_READ);
	sleeper_and_number(IN_READV);
}

static void ESCAPE_fork_beside_a_writer_whose_number_is_anothers(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("for ThreadSanitizer the two files at one number are one");
	sleeper_and_number(IN_WRITE);
}

struct busy {
	struct test_thread t;
	int fd;
	int ep;
	int stop;
	uint64_t total;
	int bad;
};

static void *busy_writer(void *arg)
{
	struct busy *b = arg;

	while (!__atomic_load_n(&b->stop, __ATOMIC_ACQUIRE)) {
		if (put(b->fd, 1) != 8)
			b->bad++;
		b->total++;
		if (b->total % 64 == 0)
			sched_yield();
	}
	return NULL;
}

/* Ends at the value that has the top bit. */
static void *busy_reader(void *arg)
{
	struct busy *b = arg;
	struct epoll_event ev;

	for (;;) {
		uint64_t v;

		if (b->ep != -1 && epoll_wait(b->ep, &ev, 1, -1) != 1) {
			b->bad++;
			return NULL;
		}
		v = get(b->fd);
		if (v == UINT64_MAX) {
			b->bad += errno != EAGAIN;
			continue;
		}
		b->total += v & ~(1ull << 63);
		if (v >> 63)
			return NULL;
	}
}

/* Traffic goes on through many forks; not one count is lost or made up. */
static void ESCAPE_fork_beside_traffic(void **state)
{
	for (int by_epoll = 0; by_epoll < 2; by_epoll++) {
		for (int round = 0; round < 10; round++) {
			struct busy *b = calloc(3, sizeof(*b));
			int fd = efd_new(0, by_epoll ? EFD_NONBLOCK : 0), ep = ep_new();

			(void)state;
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
			for (int i = 0; i < 3; i++) {
				b[i].fd = fd;
				b[i].ep = by_epoll ? ep : -1;
				thread_start(&b[i].t, i < 2 ? busy_writer : busy_reader, &b[i]);
			}
			for (int k = 0; k < 3; k++) {
				pid_t pid = (pid_t)assert_ok(fork_bounded());

				if (pid == 0)
					_exit(0);
				assert_int_equal(child_end(pid), 0);
			}
			for (int i = 0; i < 2; i++) {
				__atomic_store_n(&b[i].stop, 1, __ATOMIC_RELEASE);
				assert_true(thread_join(&b[i].t, SOON_MS));
				assert_int_equal(b[i].bad, 0);
			}
			efd_add(fd, 1ull << 63);
			assert_true(thread_join(&b[2].t, SOON_MS));
			assert_int_equal(b[2].bad, 0);
			assert_int_equal(b[2].total, b[0].total + b[1].total);
			free(b);
			close(fd);
			close(ep);
		}
	}
}

/* ---- exec, spawn, shells ---- */

static void ESCAPE_vfork_and_exec(void **state)
{
	struct world w = world_made();
	struct args a;
	char **argv = args_make(&a, "--check", &w);
	pid_t pid = vfork();

	(void)state;
	if (pid == 0) {
		execve(self, argv, environ);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

static void ESCAPE_vfork_and_fork(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--vfork-fork"), 0);
}

static void ESCAPE_vfork_and_exit(void **state)
{
	struct world w = world_made();
	pid_t pid = vfork();

	(void)state;
	if (pid == 0)
		_exit(3);
	assert_true(pid > 0);
	assert_int_equal(child_end(pid), 3);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

static void ESCAPE_posix_spawn(void **state)
{
	struct world w = world_made();
	struct args a;

	(void)state;
	assert_int_equal(spawn_self(args_make(&a, "--check", &w)), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);

	w = world_made();
	pid_t pid;
	assert_int_equal(
		posix_spawnp(&pid, self, NULL, NULL, args_make(&a, "--check", &w), environ), 0);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

/* The file actions put a private eventfd where the world has another one. */
static void ESCAPE_posix_spawn_with_file_actions(void **state)
{
	struct world w = world_made();
	posix_spawn_file_actions_t fa;
	struct args a;
	int kept[2], moved = fcntl(w.fd[WC], F_DUPFD_CLOEXEC, 300);
	pid_t pid;

	(void)state;
	assert_int_not_equal(moved, -1);
	assert_ok(fcntl(w.fd[WA], F_SETFD, FD_CLOEXEC));
	assert_ok(fcntl(w.fd[WC], F_SETFD, FD_CLOEXEC));
	kept[0] = (int)assert_ok(fcntl(w.fd[WA], F_DUPFD_CLOEXEC, 300));
	assert_int_equal(posix_spawn_file_actions_init(&fa), 0);
	assert_int_equal(posix_spawn_file_actions_adddup2(&fa, kept[0], w.fd[WA]), 0);
	assert_int_equal(posix_spawn_file_actions_adddup2(&fa, moved, w.fd[WC]), 0);
	assert_int_equal(posix_spawn_file_actions_addclose(&fa, moved), 0);
	assert_int_equal(posix_spawn(&pid, self, &fa, NULL, args_make(&a, "--check", &w), environ),
			 0);
	assert_int_equal(child_end(pid), 0);
	posix_spawn_file_actions_destroy(&fa);
	assert_int_equal(world_check_used(&w), 0);
	close(moved);
	close(kept[0]);
	world_close(&w);
}

static void ESCAPE_system(void **state)
{
	struct world w;
	char line[8192];
	int st;

	(void)state;
	/* A sanitized drop-in cannot be loaded into the shell, which is not sanitized. */
	if (SANITIZED && under_pollux())
		SKIP("the shell is not sanitized");
	w = world_made();
	args_line(line, sizeof(line), "--check", &w);
	st = system(line);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

static void ESCAPE_popen(void **state)
{
	struct world w;
	char line[8192], answer[64] = "";
	FILE *f;
	int st;

	(void)state;
	/* A sanitized drop-in cannot be loaded into the shell, which is not sanitized. */
	if (SANITIZED && under_pollux())
		SKIP("the shell is not sanitized");
	w = world_made();
	args_line(line, sizeof(line) - 32, "--check", &w);
	strcat(line, " && echo well");
	f = popen(line, "r");
	assert_non_null(f);
	assert_non_null(fgets(answer, sizeof(answer), f));
	st = pclose(f);
	assert_string_equal(answer, "well\n");
	assert_int_equal(st, 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

static void ESCAPE_fork_and_exec(void **state)
{
	(void)state;
	for (int how = 0; how < EXECS; how++) {
		struct world w = world_made();
		struct args a;
		char **argv = args_make(&a, "--check", &w);
		pid_t pid = (pid_t)assert_ok(fork_bounded());

		if (pid == 0) {
			exec_self((enum exec_how)how, argv);
			_exit(127);
		}
		assert_int_equal(child_end(pid), 0);
		assert_int_equal(world_check_used(&w), 0);
		world_close(&w);
	}
}

static void ESCAPE_exec_without_fork(void **state)
{
	(void)state;
	for (int how = 0; how < EXECS; how++) {
		char number[8];
		char *argv[] = {self, "--make-exec", number, NULL};

		snprintf(number, sizeof(number), "%d", how);
		assert_int_equal(spawn_self(argv), 0);
	}
}

static void ESCAPE_exec_from_another_thread(void **state)
{
	char *argv[] = {self, "--make-exec-thread", "0", NULL};

	(void)state;
	assert_int_equal(spawn_self(argv), 0);
}

static void ESCAPE_exec_that_fails(void **state)
{
	char *argv[] = {self, "--failed-exec", NULL};

	(void)state;
	assert_int_equal(spawn_self(argv), 0);
}

static void ESCAPE_exec_with_CLOEXEC(void **state)
{
	struct world w = world_made();
	struct args a;

	(void)state;
	world_cloexec(&w);
	assert_int_equal(spawn_self(args_make(&a, "--closed", &w)), 0);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

static void ESCAPE_exec_with_the_epoll_alone(void **state)
{
	struct world w = world_made();
	struct args a;
	char got[17];

	(void)state;
	world_cloexec(&w);
	assert_ok(fcntl(w.ep, F_SETFD, 0));
	assert_int_equal(spawn_self(args_make(&a, "--only-epoll", &w)), 0);
	/* The edge and the oneshot were delivered over there. */
	assert_string_equal(collected_sorted(&w, got), "ag");
	world_close(&w);
}

/* ---- descriptors in messages ---- */

/* No more can be sent at a time (SCM_MAX_FD). */
#define FDS_MAX 253

/* Sends n descriptors with four bytes of text, by sendmsg or by sendmmsg. */
static int fds_send(int sock, const int *fds, int n, bool many)
{
	char control[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	struct iovec iov = {.iov_base = (void *)(uintptr_t) "fds!", .iov_len = 4};
	struct mmsghdr mm;
	struct msghdr *m = &mm.msg_hdr;
	struct cmsghdr *c;

	memset(&mm, 0, sizeof(mm));
	memset(control, 0, sizeof(control));
	m->msg_iov = &iov;
	m->msg_iovlen = 1;
	m->msg_control = control;
	m->msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n);
	return many ? sendmmsg(sock, &mm, 1, 0) == 1 : sendmsg(sock, m, 0) == 4;
}

static int fds_receive(int sock, int *fds, int n, bool many)
{
	char control[CMSG_SPACE(sizeof(int) * FDS_MAX)], text[4];
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text)};
	struct mmsghdr mm;
	struct msghdr *m = &mm.msg_hdr;
	struct cmsghdr *c;

	memset(&mm, 0, sizeof(mm));
	m->msg_iov = &iov;
	m->msg_iovlen = 1;
	m->msg_control = control;
	m->msg_controllen = sizeof(control);
	if (many ? recvmmsg(sock, &mm, 1, 0, NULL) != 1 : recvmsg(sock, m, 0) != 4)
		return 0;
	c = CMSG_FIRSTHDR(m);
	if (c == NULL || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(sizeof(int) * (size_t)n))
		return 0;
	memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)n);
	return 1;
}

/*
 * The child is older than the world: it gets all of it by message, and puts the
 * descriptors where epoll_ctl looks for them.
 */
static int receiver_main(int sock, bool many)
{
	int fds[WORLD_FDS];
	struct world where, w;

	CHECK(fds_receive(sock, fds, WORLD_FDS, many));
	CHECK(read(sock, &where, sizeof(where)) == sizeof(where));
	for (int i = 0; i < WORLD_FDS; i++) {
		int high = fcntl(fds[i], F_DUPFD, 500);

		CHECK(high != -1);
		close(fds[i]);
		fds[i] = high;
	}
	w = where;
	CHECK(dup2(fds[0], w.ep) == w.ep);
	for (int i = 0; i < WORLD; i++)
		CHECK(dup2(fds[i + 1], w.fd[i]) == w.fd[i]);
	CHECK(dup2(fds[WORLD_FDS - 1], w.wr) == w.wr);
	return world_check(&w);
}

static void scm_to_a_child(bool many)
{
	int sv[2], fds[WORLD_FDS];
	struct world w;
	pid_t pid;

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	/* High numbers, which the child has free. */
	for (int i = 0; i < 2; i++) {
		int high = (int)assert_ok(fcntl(sv[i], F_DUPFD, 400));

		close(sv[i]);
		sv[i] = high;
	}
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0)
		_exit(receiver_main(sv[1], many) != 0);
	w = world_made();
	fds[0] = w.ep;
	memcpy(&fds[1], w.fd, sizeof(w.fd));
	fds[WORLD_FDS - 1] = w.wr;
	assert_true(fds_send(sv[0], fds, WORLD_FDS, many));
	assert_int_equal(assert_ok(write(sv[0], &w, sizeof(w))), sizeof(w));
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
	close(sv[0]);
	close(sv[1]);
}

static void ESCAPE_SCM_RIGHTS_sendmsg_to_a_child(void **state)
{
	(void)state;
	scm_to_a_child(false);
}

static void ESCAPE_SCM_RIGHTS_sendmmsg_to_a_child(void **state)
{
	(void)state;
	scm_to_a_child(true);
}

/* The kernel refuses so much (sendmsg), whatever is said in it. */
static void ESCAPE_SCM_RIGHTS_in_a_control_without_end(void **state)
{
	struct cmsghdr c = {.cmsg_len = SIZE_MAX - sizeof(size_t) / 2, .cmsg_level = SOL_SOCKET};
	struct iovec iov = {.iov_base = (void *)(uintptr_t) "x", .iov_len = 1};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = SIZE_MAX};
	int sv[2], fd = efd_new(1, EFD_NONBLOCK);

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	assert_errno(sendmsg(sv[0], &m, 0), ENOBUFS);
	close(sv[0]);
	close(sv[1]);
	close(fd);
}

static void ESCAPE_SCM_RIGHTS_within_the_process(void **state)
{
	(void)state;
	for (int many = 0; many < 2; many++) {
		int sv[2], fd = efd_new(4, EFD_NONBLOCK), ep = ep_new(), got = -1;

		assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 8));
		assert_true(ep_one(ep, EPOLLIN, 8));
		assert_true(fds_send(sv[0], &fd, 1, many));
		assert_true(fds_receive(sv[1], &got, 1, many));
		assert_int_not_equal(got, fd);
		efd_add(got, 1);
		assert_true(ep_one(ep, EPOLLIN, 8));
		assert_int_equal(efd_take(fd), 5);
		efd_add(fd, 6);
		assert_int_equal(efd_take(got), 6);
		ep_count(ep);
		close(fd);
		efd_add(got, 2);
		assert_true(ep_one(ep, EPOLLIN, 8));
		close(got);
		assert_int_equal(ep_count(ep), 0);
		close(ep);
		close(sv[0]);
		close(sv[1]);
	}
}

/* A descriptor in flight keeps the file, and with it the item. */
static void ESCAPE_SCM_RIGHTS_closed_while_in_flight(void **state)
{
	(void)state;
	for (int many = 0; many < 2; many++) {
		int sv[2], fd = efd_new(4, EFD_NONBLOCK), ep = ep_new(), got = -1;

		assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 8));
		assert_true(fds_send(sv[0], &fd, 1, many));
		close(fd);
		assert_true(ep_one(ep, EPOLLIN, 8));
		assert_true(fds_receive(sv[1], &got, 1, many));
		assert_int_equal(efd_take(got), 4);
		assert_int_equal(ep_count(ep), 0);
		efd_add(got, 1);
		assert_true(ep_one(ep, EPOLLIN, 8));
		close(got);
		assert_int_equal(ep_count(ep), 0);
		close(ep);
		close(sv[0]);
		close(sv[1]);
	}
}

/* An epoll with its set goes through a message and comes back. */
static void ESCAPE_SCM_RIGHTS_of_an_epoll(void **state)
{
	struct world w = world_made();
	int sv[2];

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	assert_true(fds_send(sv[0], &w.ep, 1, false));
	close(w.ep);
	assert_true(fds_receive(sv[1], &w.ep, 1, false));
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
	close(sv[0]);
	close(sv[1]);
}

#define SENDINGS 4
/* The same number so often in a message, so that to look at them takes a while. */
#define SENT 200

struct sending {
	int sock, fd[SENT], sent;
};

static void *sends(void *arg)
{
	struct sending *s = arg;

	for (int i = 0; i < SENDINGS; i++)
		s->sent += fds_send(s->sock, s->fd, SENT, i & 1);
	return NULL;
}

/* What was there before is sent, or what takes its place, and nothing else. */
static void ESCAPE_SCM_RIGHTS_of_a_number_that_becomes_an_eventfd(void **state)
{
	int sv[2];

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv));
	for (int i = 0; i < 200; i++) {
		int pipes[2], got[SENT], efd = efd_new(0, EFD_NONBLOCK), eventfds = 0;
		struct sending s = {.sock = sv[0]};
		pthread_t t;

		assert_ok(pipe(pipes));
		for (int k = 0; k < SENT; k++)
			s.fd[k] = pipes[0];
		assert_int_equal(pthread_create(&t, NULL, sends, &s), 0);
		for (volatile int k = 0; k < i * 200; k++)
			;
		assert_int_equal(assert_ok(dup2(efd, pipes[0])), pipes[0]);
		pthread_join(t, NULL);
		assert_int_equal(s.sent, SENDINGS);
		for (int k = 0; k < SENDINGS; k++) {
			assert_true(fds_receive(sv[1], got, SENT, false));
			for (int m = 0; m < SENT; m++) {
				struct stat st;

				assert_ok(fstat(got[m], &st));
				if (!S_ISFIFO(st.st_mode)) {
					efd_add(got[m], 1);
					eventfds++;
				}
				close(got[m]);
			}
		}
		assert_int_equal(eventfds ? efd_take(pipes[0]) : 0, eventfds);
		close(pipes[0]);
		close(pipes[1]);
		close(efd);
	}
	close(sv[0]);
	close(sv[1]);
}

static void ESCAPE_pidfd_getfd(void **state)
{
	struct world w = world_made();
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), got;

	(void)state;
	if (pidfd == -1) {
		world_close(&w);
		SKIP("no pidfd_open");
	}
	got = (int)syscall(SYS_pidfd_getfd, pidfd, w.fd[WA], 0);
	if (got == -1) {
		close(pidfd);
		world_close(&w);
		SKIP("no pidfd_getfd for this user");
	}
	assert_int_equal(poll_now(got), POLLIN | POLLOUT);
	assert_int_equal(world_check(&w), 0);
	efd_add(got, 3);
	assert_true(ep_one(w.ep, EPOLLIN, 'a'));
	assert_int_equal(efd_take(w.fd[WA]), 3);
	assert_int_equal(world_check_used(&w), 0);
	close(got);
	close(pidfd);
	world_close(&w);
}

/* ---- duplicates ---- */

enum dup_how { BY_DUP, BY_DUP2, BY_DUP3, BY_F_DUPFD, BY_F_DUPFD_CLOEXEC, BY_RAW_DUP, DUPS };

static int dup_by(enum dup_how how, int fd, int target)
{
	switch (how) {
	case BY_DUP2:
		return dup2(fd, target);
	case BY_DUP3:
		return dup3(fd, target, O_CLOEXEC);
	case BY_F_DUPFD:
		return fcntl(fd, F_DUPFD, target);
	case BY_F_DUPFD_CLOEXEC:
		return fcntl(fd, F_DUPFD_CLOEXEC, target);
	case BY_RAW_DUP:
		return (int)syscall(SYS_dup, fd);
	default:
		return dup(fd);
	}
}

static void ESCAPE_dup_is_the_same_eventfd(void **state)
{
	(void)state;
	for (int how = 0; how < DUPS; how++) {
		int fd = efd_new(4, EFD_NONBLOCK), ep = ep_new(), copy;
		bool cloexec = how == BY_DUP3 || how == BY_F_DUPFD_CLOEXEC;

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
		assert_true(ep_one(ep, EPOLLIN, 1));
		copy = (int)assert_ok(dup_by((enum dup_how)how, fd, 350));
		if (how != BY_DUP && how != BY_RAW_DUP)
			assert_int_equal(copy, 350);
		assert_int_equal(fcntl(copy, F_GETFD), cloexec ? FD_CLOEXEC : 0);
		assert_int_equal(fcntl(copy, F_GETFL), O_RDWR | O_NONBLOCK);
		ep_take_repeat(ep, fd, 1);
		efd_add(copy, 1);
		assert_true(ep_one(ep, EPOLLIN, 1));
		assert_int_equal(efd_take(fd), 5);
		assert_int_equal(get(copy), UINT64_MAX);
		/* A second item for the same file, under the other number. */
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, copy, EPOLLIN, 2));
		close(fd);
		efd_add(copy, 2);
		assert_int_equal(ep_count(ep), 2);
		assert_true(ep_one(ep, EPOLLIN, 2));
		close(copy);
		assert_int_equal(ep_count(ep), 0);
		close(ep);
	}
}

static void ESCAPE_dup_of_an_epoll_is_the_same_set(void **state)
{
	(void)state;
	for (int how = 0; how < DUPS; how++) {
		struct world w = world_made();
		int first = w.ep;

		w.ep = (int)assert_ok(dup_by((enum dup_how)how, first, 350));
		if (how % 2 == 0)
			close(first);
		assert_int_equal(world_check(&w), 0);
		if (how % 2 == 1) {
			close(w.ep);
			w.ep = first;
		}
		assert_int_equal(world_check_used(&w), 0);
		world_close(&w);
	}
}

static void ESCAPE_dup2_over_a_watched_eventfd(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), other = efd_new(3, 0), ep = ep_new(), p[2];
	char c = 0;

	(void)state;
	assert_ok(pipe(p));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	assert_int_equal(dup2(fd, fd), fd);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_errno(dup3(fd, fd, 0), EINVAL);
	/* Another eventfd takes the number: the first is gone with its item. */
	assert_int_equal(dup2(other, fd), fd);
	assert_int_equal(ep_count(ep), 0);
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0), ENOENT);
	assert_int_equal(efd_take(fd), 3);
	/* A pipe takes the number. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 2));
	assert_int_equal(dup2(p[0], fd), fd);
	assert_int_equal(write(p[1], "z", 1), 1);
	assert_int_equal(read(fd, &c, 1), 1);
	assert_int_equal(c, 'z');
	efd_add(other, 6);
	/* The item lives as long as other does, and cannot be reached by fd. */
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0), ENOENT);
	/* An eventfd takes the number of a pipe end. */
	assert_int_equal(dup2(other, p[1]), p[1]);
	assert_int_equal(efd_take(p[1]), 6);
	close(p[0]);
	close(p[1]);
	close(fd);
	close(other);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
}

/* The number stays what it was, and so does what watches it. */
static void ESCAPE_dup2_over_a_watched_eventfd_that_is_refused(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = ep_new();
	struct rlimit was, low;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	assert_ok(getrlimit(RLIMIT_NOFILE, &was));
	low = was;
	low.rlim_cur = (rlim_t)fd;
	assert_ok(setrlimit(RLIMIT_NOFILE, &low));
	assert_errno(dup2(ep, fd), EBADF);
	assert_ok(setrlimit(RLIMIT_NOFILE, &was));
	assert_errno(dup2(1000, fd), EBADF);
	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(efd_take(fd), 1);
	assert_int_equal(ep_count(ep), 0);
	close(fd);
	close(ep);
}

/* It is refused, and nothing has to be the kernel's for that. */
static void ESCAPE_reads_and_writes_of_an_epoll_are_none(void **state)
{
	struct iovec iov = {.iov_base = (char[8]){0}, .iov_len = 8};
	int ep = ep_new();

	(void)state;
	assert_errno(readv(ep, &iov, 1), EINVAL);
	assert_errno(writev(ep, &iov, 1), EINVAL);
	assert_errno(preadv2(ep, &iov, 1, -1, 0), EINVAL);
	assert_errno(pwritev2(ep, &iov, 1, -1, 0), EINVAL);
	assert_int_equal(fd_served(ep), under_pollux());
	close(ep);
}

/* ---- closing many ---- */

static void close_by(int way, int lo, int hi)
{
	switch (way) {
	case 0:
		assert_ok(close_range((unsigned int)lo, (unsigned int)hi, 0));
		break;
	case 1:
		assert_ok(syscall(SYS_close_range, (unsigned int)lo, ~0u, 0u));
		break;
	default:
		closefrom(lo);
		break;
	}
}

/* Each round ends a number of an eventfd while the eventfd leaves by the other one. */
#define BESIDE_ROUNDS 150
struct beside {
	int fd, null, how, round, failed;
};

static void *ends_numbers(void *arg)
{
	struct beside *b = arg;

	for (int i = 1; i <= BESIDE_ROUNDS; i++) {
		int r;

		while (__atomic_load_n(&b->round, __ATOMIC_ACQUIRE) != 2 * i - 1)
			sched_yield();
		/* Not always at the same moment. */
		for (volatile int n = i % 16 * 100; n; n--)
			;
		if (b->how == 0)
			r = close(b->fd);
		else if (b->how == 1)
			r = dup2(b->null, b->fd) == b->fd ? close(b->fd) : -1;
		else
			r = close_range((unsigned int)b->fd, (unsigned int)b->fd, 0);
		if (r != 0)
			b->failed = i;
		__atomic_store_n(&b->round, 2 * i, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void ends_beside_escapes(int how)
{
	static struct beside b;
	struct test_thread t;

	b = (struct beside){.how = how};
	b.null = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));
	thread_start(&t, ends_numbers, &b);
	for (int i = 1; i <= BESIDE_ROUNDS; i++) {
		int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC)), other;
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

		b.fd = (int)assert_ok(eventfd(0, EFD_NONBLOCK));
		other = (int)assert_ok(dup(b.fd));
		assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, b.fd, &ev));
		__atomic_store_n(&b.round, 2 * i - 1, __ATOMIC_RELEASE);
		assert_ok(fcntl(other, F_SETOWN, getpid()));
		while (__atomic_load_n(&b.round, __ATOMIC_ACQUIRE) != 2 * i)
			sched_yield();
		assert_int_equal(b.failed, 0);
		assert_int_equal(fcntl(b.fd, F_GETFD), -1);
		assert_int_equal(put(other, 1), 8);
		memset(&ev, 0, sizeof(ev));
		assert_int_equal(epoll_wait(ep, &ev, 1, 0), 1);
		assert_int_equal(ev.data.u64, 7);
		close(other);
		close(ep);
	}
	assert_true(thread_join(&t, SOON_MS));
	close(b.null);
}

static void ESCAPE_close_of_a_number_beside_an_escape(void **state)
{
	(void)state;
	ends_beside_escapes(0);
}

static void ESCAPE_dup2_over_a_number_beside_an_escape(void **state)
{
	(void)state;
	ends_beside_escapes(1);
}

static void ESCAPE_close_range_of_a_number_beside_an_escape(void **state)
{
	(void)state;
	ends_beside_escapes(2);
}

static void ESCAPE_close_range_and_closefrom(void **state)
{
	(void)state;
	for (int way = 0; way < 3; way++) {
		int fd[3], ep = ep_new(), copy, p[2], high;
		char c = 0;

		for (int i = 0; i < 3; i++) {
			int low = efd_new(1, EFD_NONBLOCK);

			fd[i] = (int)assert_ok(fcntl(low, F_DUPFD, 600));
			assert_int_equal(fd[i], 600 + i);
			close(low);
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd[i], EPOLLIN, (uint64_t)i));
		}
		copy = (int)assert_ok(dup(fd[1]));
		close_by(way, 600, 602);
		for (int i = 0; i < 3; i++) {
			uint64_t v;

			assert_errno(read(fd[i], &v, 8), EBADF);
			assert_errno(write(fd[i], &v, 8), EBADF);
			assert_errno(fcntl(fd[i], F_GETFD), EBADF);
			assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, fd[i], 0, 0), EBADF);
		}
		/* The one with another descriptor is still there. */
		assert_true(ep_one(ep, EPOLLIN, 1));
		/* The numbers mean something else now. */
		assert_ok(pipe(p));
		high = (int)assert_ok(fcntl(p[0], F_DUPFD, 600));
		assert_int_equal(high, 600);
		assert_int_equal(write(p[1], "k", 1), 1);
		assert_int_equal(read(high, &c, 1), 1);
		assert_int_equal(c, 'k');
		close(high);
		close(p[0]);
		close(p[1]);
		close(copy);
		assert_int_equal(ep_count(ep), 0);
		close(ep);
	}
}

static void ESCAPE_close_range_of_an_epoll(void **state)
{
	struct world w = world_made();
	int high = (int)assert_ok(fcntl(w.ep, F_DUPFD, 600)), low = w.ep;
	struct epoll_event ev;

	(void)state;
	assert_ok(close_range(600, 700, 0));
	assert_errno(epoll_wait(high, &ev, 1, 0), EBADF);
	assert_int_equal(world_check(&w), 0);
	high = (int)assert_ok(fcntl(low, F_DUPFD, 600));
	close(low);
	assert_ok(close_range(600, 700, 0));
	assert_errno(fcntl(high, F_GETFD), EBADF);
	/* The eventfds have no watcher any more, and work. */
	w.ep = ep_new();
	for (int i = 0; i < WORLD; i++)
		assert_int_equal(world_add(&w, i, 0), 0);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

/* What an epoll inside another one has been told before it ends stays told. */
static void ESCAPE_close_range_ends_the_last_first(void **state)
{
	(void)state;
	for (int served = 0; served < 2; served++) {
		int outer = ep_new(), middle = ep_new(), inner = ep_new(),
		    late = efd_new(0, EFD_NONBLOCK), p[2];
		int copy = (int)assert_ok(fcntl(inner, F_DUPFD, 600));
		struct epoll_event ev[2];

		close(inner);
		assert_ok(pipe(p));
		assert_int_equal(assert_ok(fcntl(p[0], F_DUPFD, 601)), 601);
		close(p[0]);
		/* Items of a library's own, which go to the kernel when the epolls are nested. */
		if (served)
			assert_ok(ep_ctl(copy, EPOLL_CTL_ADD, late, EPOLLIN | EPOLLET, 1));
		assert_ok(ep_ctl(copy, EPOLL_CTL_ADD, p[1], EPOLLIN | EPOLLET, 2));
		assert_ok(ep_ctl(middle, EPOLL_CTL_ADD, copy, EPOLLIN, 3));
		assert_ok(ep_ctl(middle, EPOLL_CTL_ADD, late, EPOLLIN, 4));
		assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, middle, EPOLLIN | EPOLLET, 5));
		ep_poll(copy, ev, 2);
		ep_poll(outer, ev, 2);
		/* The pipe, which makes inner, middle and outer ready; then inner. */
		assert_ok(close_range((unsigned int)copy, 601, 0));
		assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, p[1], EPOLLIN, 6));
		efd_add(late, 1);
		assert_int_equal(ep_poll(outer, ev, 2), 2);
		assert_int_equal(ev[0].data.u64, 5);
		assert_int_equal(ev[1].data.u64, 6);
		close(p[1]);
		close(late);
		close(middle);
		close(outer);
	}
}

static void ESCAPE_close_range_CLOEXEC(void **state)
{
	struct world w = world_made();
	int fd = efd_new(1, EFD_NONBLOCK), high = (int)assert_ok(fcntl(fd, F_DUPFD, 600));

	(void)state;
	assert_ok(close_range(600, 700, CLOSE_RANGE_CLOEXEC));
	assert_int_equal(fcntl(high, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	assert_int_equal(efd_take(high), 1);
	assert_int_equal(world_check(&w), 0);
	close(fd);
	close(high);
	world_close(&w);
}

/* ---- no descriptor left ---- */

static int wait_status(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/*
 * The soft limit of descriptors is the hard one and every number is taken: what needs no number
 * in the kernel works as ever, a fork and its child among it.
 */
enum limit_by {
	LIMIT_FIRST,
	LIMIT_LOWERED,
	/* By another thread, which names itself. */
	LIMIT_BY_THREAD,
};

static void *limit_here(void *lim)
{
	return (void *)(intptr_t)prlimit((pid_t)syscall(SYS_gettid), RLIMIT_NOFILE, lim, NULL);
}

static int lower_limit(const struct rlimit *lim, bool by_thread)
{
	void *r;
	pthread_t t;

	if (!by_thread)
		return setrlimit(RLIMIT_NOFILE, lim);
	return pthread_create(&t, NULL, limit_here, (void *)lim) || pthread_join(t, &r) || r;
}

static int without_numbers(enum limit_by how)
{
	struct rlimit lim = {.rlim_cur = 64, .rlim_max = 64};
	struct epoll_event ev[4];
	struct pollfd p[2];
	struct world w;
	int ep, e, s;
	pid_t pid;

	/* However many were inherited: Pollux takes some of the last (docs/compatibility.md). */
	CHECK(close_range(3, ~0u, 0) == 0);
	if (how == LIMIT_FIRST)
		CHECK(lower_limit(&lim, false) == 0);
	CHECK(world_new(&w) == 0);
	ep = epoll_create1(0);
	e = eventfd(0, EFD_NONBLOCK);
	s = eventfd(0, EFD_SEMAPHORE);
	CHECK(ep != -1 && e != -1 && s != -1);
	if (how != LIMIT_FIRST)
		CHECK(lower_limit(&lim, how == LIMIT_BY_THREAD) == 0);
	while (dup(STDERR_FILENO) != -1)
		;
	CHECK(errno == EMFILE);
	CHECK(eventfd(0, EFD_NONBLOCK) == -1 && errno == EMFILE);
	CHECK(epoll_create1(0) == -1 && errno == EMFILE);

	p[0] = (struct pollfd){.fd = e, .events = POLLIN};
	p[1] = (struct pollfd){.fd = s, .events = POLLIN};
	CHECK(poll(p, 2, 2) == 0);
	CHECK(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN | EPOLLET, 1) == 0);
	CHECK(ep_ctl(ep, EPOLL_CTL_ADD, s, EPOLLIN, 2) == 0);
	CHECK(epoll_wait(ep, ev, 4, 2) == 0);
	CHECK(put(e, 5) == 8 && put(s, 2) == 8);
	CHECK(epoll_wait(ep, ev, 4, -1) == 2);
	CHECK(ev[0].data.u64 == 1 && ev[1].data.u64 == 2);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1 && ev[0].data.u64 == 2);

	pid = fork();
	CHECK(pid != -1);
	if (pid == 0)
		_exit(world_check(&w) != 0 || put(e, 1) != 8 || get(s) != 1);
	CHECK(wait_status(pid) == 0);
	CHECK(world_check_used(&w) == 0);
	CHECK(epoll_wait(ep, ev, 4, 0) == 2);
	CHECK(get(e) == 6 && get(s) == 1);
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
	CHECK(dup(STDERR_FILENO) == -1 && errno == EMFILE);

	close(ep);
	world_close(&w);
	CHECK(world_new(&w) == 0);
	CHECK(world_check(&w) == 0);
	world_close(&w);
	return 0;
}

static int helper_limit_by_thread(void)
{
	return without_numbers(LIMIT_BY_THREAD);
}

static void no_number_left(enum limit_by how)
{
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	if (pid == 0)
		_exit(without_numbers(how) != 0);
	assert_int_equal(child_end(pid), 0);
}

static void ESCAPE_no_number_left_below_a_lowered_hard_limit(void **state)
{
	(void)state;
	no_number_left(LIMIT_LOWERED);
}

static void ESCAPE_no_number_left_below_a_limit_lowered_by_a_thread(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--limit-by-thread"), 0);
}

static void ESCAPE_no_number_left_with_a_low_hard_limit(void **state)
{
	(void)state;
	no_number_left(LIMIT_FIRST);
}

static void ESCAPE_what_is_started_has_the_limit_of_descriptors(void **state)
{
	(void)state;
	assert_child(helper_at_length("--limit-of-children"),
		     "the hard limit of descriptors is low");
}

struct apart {
	struct test_thread t;
	struct world *w;
	int go;
	int r;
};

/* A thread with a descriptor table of its own: its closes are its own affair. */
static int apart_run(struct apart *a)
{
	if (unshare(CLONE_FILES) != 0)
		return -1;
	CHECK(put(a->w->fd[WF], 1) == 8);
	CHECK(get(a->w->fd[WF]) == 1);
	CHECK(get(a->go) == 1);
	world_close(a->w);
	CHECK(fcntl(a->w->fd[WA], F_GETFD) == -1 && errno == EBADF);
	return 0;
}

static void *apart_main(void *arg)
{
	struct apart *a = arg;

	a->r = apart_run(a);
	return NULL;
}

static void ESCAPE_unshare_of_the_descriptor_table(void **state)
{
	struct world w = world_made();
	struct apart *a = calloc(1, sizeof(*a));
	int r;

	(void)state;
	a->w = &w;
	a->go = efd_new(0, 0);
	thread_start(&a->t, apart_main, a);
	efd_add(a->go, 1);
	assert_true(thread_join(&a->t, SOON_MS));
	r = a->r;
	close(a->go);
	free(a);
	if (r == -1) {
		world_close(&w);
		SKIP("unshare(CLONE_FILES) is not permitted");
	}
	assert_int_equal(r, 0);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

/* ---- calls that move data ---- */

static void ESCAPE_splice_and_the_like(void **state)
{
	struct world w = world_made();
	int p[2], fd = w.fd[WA], file = (int)assert_ok(memfd_create("escape", 0));
	struct iovec iov = {.iov_base = (void *)(uintptr_t) "12345678", .iov_len = 8};

	(void)state;
	assert_ok(pipe2(p, O_NONBLOCK));
	assert_int_equal(write(p[1], "12345678", 8), 8);
	assert_int_equal(write(file, "12345678", 8), 8);
	assert_ok(lseek(file, 0, SEEK_SET));
	assert_errno(splice(p[0], NULL, fd, NULL, 8, 0), EINVAL);
	assert_errno(splice(fd, NULL, p[1], NULL, 8, 0), EINVAL);
	assert_errno(tee(p[0], fd, 8, 0), EINVAL);
	assert_errno(tee(fd, p[1], 8, 0), EINVAL);
	assert_errno(vmsplice(fd, &iov, 1, 0), EBADF);
	assert_errno(sendfile(fd, file, NULL, 8), EINVAL);
	assert_errno(sendfile(p[1], fd, NULL, 8), EINVAL);
	assert_errno(copy_file_range(file, NULL, fd, NULL, 8, 0), EINVAL);
	close(file);
	close(p[0]);
	close(p[1]);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

static void ESCAPE_fcntl(void **state)
{
	struct world w = world_made();
	int fd = w.fd[WA];

	(void)state;
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	assert_ok(fcntl(fd, F_SETFD, FD_CLOEXEC));
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_ok(fcntl(fd, F_SETFD, 0));
	assert_ok(fcntl(fd, F_SETFL, O_NONBLOCK));
	assert_int_equal(fcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
	assert_ok(syscall(SYS_fcntl, fd, F_SETFL, 0));
	assert_int_equal(syscall(SYS_fcntl, fd, F_GETFL), O_RDWR);
	assert_int_equal(fcntl(fd, F_GETOWN), 0);
	assert_ok(fcntl(fd, F_SETOWN, getpid()));
	assert_int_equal(fcntl(fd, F_GETOWN), getpid());
	assert_ok(fcntl(fd, F_SETSIG, SIGUSR2));
	assert_int_equal(fcntl(fd, F_GETSIG), SIGUSR2);
	assert_ok(fcntl(fd, F_SETSIG, 0));
	assert_errno(fcntl(fd, F_GETPIPE_SZ), EBADF);
	assert_errno(fcntl(fd, F_SETPIPE_SZ, 4096), EBADF);
	assert_errno(fcntl(fd, F_ADD_SEALS, 0), EINVAL);
	assert_errno(fcntl(fd, 9999), EINVAL);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

static void ESCAPE_ioctl(void **state)
{
	struct world w = world_made();
	int fd = w.fd[WA], v = 1;

	(void)state;
	assert_ok(ioctl(fd, FIONBIO, &v));
	assert_int_equal(fcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
	v = 0;
	assert_ok(ioctl(fd, FIONBIO, &v));
	assert_int_equal(fcntl(fd, F_GETFL), O_RDWR);
	assert_ok(ioctl(fd, FIOCLEX));
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_ok(ioctl(fd, FIONCLEX));
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	assert_errno(ioctl(fd, FIONREAD, &v), ENOTTY);
	assert_int_equal(isatty(fd), 0);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

/* stdio reads and writes without passing through the names of libc. */
static void ESCAPE_stdio(void **state)
{
	struct world w = world_made();
	uint64_t v = 0;
	FILE *in = fdopen(w.fd[WA], "r"), *out = fdopen(w.fd[WF], "w");

	(void)state;
	assert_non_null(in);
	assert_non_null(out);
	assert_int_equal(fread(&v, sizeof(v), 1, in), 1);
	assert_int_equal(v, 5);
	v = 6;
	assert_int_equal(fwrite(&v, sizeof(v), 1, out), 1);
	assert_int_equal(fflush(out), 0);
	assert_int_equal(efd_take(w.fd[WF]), 6);
	/* Back to the state of a new world, then all of it must hold. */
	efd_add(w.fd[WA], 5);
	assert_int_equal(world_check(&w), 0);
	/* The number is free after fclose and may be anything next. */
	assert_int_equal(fclose(in), 0);
	assert_errno(fcntl(w.fd[WA], F_GETFD), EBADF);
	assert_errno(read(w.fd[WA], &v, 8), EBADF);
	int high = (int)assert_ok(fcntl(w.fd[WG], F_DUPFD, w.fd[WA]));
	assert_int_equal(high, w.fd[WA]);
	assert_int_equal(write(w.wr, "q", 1), 1);
	assert_int_equal(read(high, &v, 8), 1);
	assert_int_equal(fclose(out), 0);
	assert_errno(fcntl(w.fd[WF], F_GETFD), EBADF);
	world_close(&w);
}

static void ESCAPE_stdio_at_numbers_of_standard_streams(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--standard-streams"), 0);
}

static void ESCAPE_stdio_at_a_number_that_was_replaced(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--replaced-stream"), 0);
}

static void ESCAPE_closedir_of_a_number_given_out_again(void **state)
{
	(void)state;
	assert_int_equal(helper_alone("--closedir"), 0);
}

static void ESCAPE_dprintf(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = ep_new();
	uint64_t want;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	memcpy(&want, "ABCDEFGH", 8);
	assert_int_equal(dprintf(fd, "%s", "ABCDEFGH"), 8);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(efd_take(fd), want);
	close(fd);
	close(ep);
}

/* How the kernel refuses to open such a file anew: whom the mode keeps out hears of that first. */
static int refusal(void)
{
	int fd = (int)assert_ok(inotify_init1(IN_CLOEXEC)), e;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(open(path, O_RDWR), -1);
	e = errno;
	close(fd);
	assert_true(e == ENXIO || e == EACCES);
	return e;
}

static void ESCAPE_proc_self_fd(void **state)
{
	struct world w = world_made();
	char path[64], link[64];
	int refused = refusal();
	ssize_t n;

	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i ? w.ep : w.fd[WA]);
		n = assert_ok(readlink(path, link, sizeof(link) - 1));
		link[n > 0 ? n : 0] = '\0';
		assert_string_equal(link, i ? "anon_inode:[eventpoll]" : "anon_inode:[eventfd]");
		assert_errno(open(path, O_RDWR), refused);
		assert_errno(open(path, O_RDONLY | O_NONBLOCK), refused);
	}
	/* O_PATH opens the name, not the object. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w.fd[WA]);
	int fd = open(path, O_PATH);
	if (fd != -1) {
		uint64_t v;

		assert_errno(read(fd, &v, 8), EBADF);
		assert_errno(ep_ctl(w.ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1), EBADF);
		close(fd);
	}
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

static void ESCAPE_fstat(void **state)
{
	struct world w = world_made();
	struct stat st;
	struct statx sx;

	(void)state;
	for (int i = 0; i < 2; i++) {
		int fd = i ? w.ep : w.fd[WA];

		assert_ok(fstat(fd, &st));
		assert_int_equal(st.st_mode & 07777, 0600);
		assert_int_equal(st.st_size, 0);
		assert_int_equal(st.st_nlink, 1);
		assert_ok(fstatat(fd, "", &st, AT_EMPTY_PATH));
		assert_int_equal(st.st_mode & 07777, 0600);
		assert_ok(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx));
		assert_int_equal(sx.stx_mode & 07777, 0600);
	}
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

/* ---- mixtures ---- */

enum { MIX = 6 };

struct mix {
	struct test_thread t;
	int how;
	int fd[MIX];
	int n;
	int ready;
};

/* Which of the descriptors are ready, as a bit mask, by four calls. */
static void *mix_main(void *arg)
{
	struct mix *m = arg;
	struct pollfd p[MIX];
	fd_set r;
	int max = 0;

	FD_ZERO(&r);
	for (int i = 0; i < MIX; i++) {
		p[i] = (struct pollfd){.fd = m->fd[i], .events = POLLIN};
		FD_SET(m->fd[i], &r);
		max = m->fd[i] > max ? m->fd[i] : max;
	}
	switch (m->how) {
	case 0:
		m->n = poll(p, MIX, -1);
		break;
	case 1:
		m->n = ppoll(p, MIX, NULL, NULL);
		break;
	case 2:
		m->n = select(max + 1, &r, NULL, NULL, NULL);
		break;
	default:
		m->n = pselect(max + 1, &r, NULL, NULL, NULL, NULL);
		break;
	}
	for (int i = 0; i < MIX; i++)
		if (m->how < 2 ? p[i].revents == POLLIN : FD_ISSET(m->fd[i], &r))
			m->ready |= 1 << i;
	return NULL;
}

static void ESCAPE_poll_and_select_mixtures(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		for (int side = 0; side < MIX; side++) {
			struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
			struct mix *m = calloc(1, sizeof(*m));
			int p[2], sv[2], inside = efd_new(0, EFD_NONBLOCK);

			assert_ok(pipe(p));
			assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
			m->how = how;
			m->fd[0] = efd_new(0, EFD_NONBLOCK);
			m->fd[1] = p[0];
			m->fd[2] = sv[0];
			m->fd[3] = ep_new();
			m->fd[4] = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, 0));
			m->fd[5] = efd_new(0, EFD_SEMAPHORE);
			assert_ok(ep_ctl(m->fd[3], EPOLL_CTL_ADD, inside, EPOLLIN, 1));
			thread_start(&m->t, mix_main, m);
			assert_true(thread_asleep(&m->t));
			switch (side) {
			case 1:
				assert_int_equal(write(p[1], "x", 1), 1);
				break;
			case 2:
				assert_int_equal(write(sv[1], "x", 1), 1);
				break;
			case 3:
				efd_add(inside, 1);
				break;
			case 4:
				assert_ok(timerfd_settime(m->fd[4], 0, &soon, NULL));
				break;
			default:
				efd_add(m->fd[side], 1);
				break;
			}
			assert_true(thread_join(&m->t, SOON_MS));
			assert_int_equal(m->n, 1);
			assert_int_equal(m->ready, 1 << side);
			for (int i = 0; i < MIX; i++)
				close(m->fd[i]);
			close(p[1]);
			close(sv[1]);
			close(inside);
			free(m);
		}
	}
}

static void ESCAPE_signalfd_and_timerfd_beside_eventfds(void **state)
{
	struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
	struct signalfd_siginfo si;
	struct epoll_event ev[4];
	sigset_t set, old;
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK), sfd, tfd;
	unsigned int seen = 0;
	struct waiter *w;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	sfd = (int)assert_ok(signalfd(-1, &set, SFD_CLOEXEC));
	tfd = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, sfd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, tfd, EPOLLIN, 2));
	for (int side = 0; side < 3; side++) {
		w = waiter_new(ep, 4);
		if (side == 0)
			efd_add(fd, 1);
		else if (side == 1)
			assert_ok(kill(getpid(), SIGUSR2));
		else
			assert_ok(timerfd_settime(tfd, 0, &soon, NULL));
		waiter_gets(w, (uint64_t)side);
		if (side == 0)
			assert_int_equal(efd_take(fd), 1);
		else if (side == 1)
			assert_int_equal(assert_ok(read(sfd, &si, sizeof(si))), sizeof(si));
		else
			assert_int_equal(efd_take(tfd), 1);
		assert_int_equal(ep_count(ep), 0);
	}
	efd_add(fd, 1);
	assert_ok(kill(getpid(), SIGUSR2));
	assert_ok(timerfd_settime(tfd, 0, &soon, NULL));
	/* Beginning with the timer, which may need a moment. */
	struct pollfd p = {.fd = tfd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, SOON_MS), 1);
	assert_int_equal(epoll_wait(ep, ev, 4, 0), 3);
	for (int i = 0; i < 3; i++)
		seen |= 1u << ev[i].data.u64;
	assert_int_equal(seen, 7);
	assert_int_equal(assert_ok(read(sfd, &si, sizeof(si))), sizeof(si));
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	close(sfd);
	close(tfd);
	close(fd);
	close(ep);
}

/* ---- the kernel's hands ---- */

static void ESCAPE_aio_RESFD(void **state)
{
	struct world w = world_made();

	(void)state;
	if (!resfd_signal(w.fd[WF])) {
		world_close(&w);
		SKIP("no kernel AIO");
	}
	assert_int_equal(efd_take(w.fd[WF]), 1);
	assert_int_equal(world_check(&w), 0);
	assert_true(resfd_signal(w.fd[WA]));
	assert_true(ep_one(w.ep, EPOLLIN, 'a'));
	assert_true(resfd_signal(w.fd[WA]));
	efd_add(w.fd[WA], 1);
	assert_int_equal(efd_take(w.fd[WA]), 3);
	assert_int_equal(world_check_used(&w), 0);
	world_close(&w);
}

static void ESCAPE_aio_RESFD_wakes_sleepers(void **state)
{
	struct sleeper *s = calloc(SLEEPS, sizeof(*s));
	int probe = efd_new(0, EFD_NONBLOCK);

	(void)state;
	if (!resfd_signal(probe)) {
		free(s);
		close(probe);
		SKIP("no kernel AIO");
	}
	close(probe);
	for (int i = 0; i < SLEEPS; i++) {
		if (i == IN_WRITE || i == IN_EPOLL_MIXED || i == IN_EPOLL_OUTER)
			continue;
		s[i].how = (enum sleep_how)i;
		s[i].fd = efd_new(0, blocks((enum sleep_how)i) ? 0 : EFD_NONBLOCK);
		s[i].ep = ep_new();
		assert_ok(ep_ctl(s[i].ep, EPOLL_CTL_ADD, s[i].fd, EPOLLIN, 5));
		thread_start(&s[i].t, sleeper_main, &s[i]);
		assert_true(thread_asleep(&s[i].t));
		assert_true(resfd_signal(s[i].fd));
		assert_true(thread_join(&s[i].t, SOON_MS));
		assert_true(s[i].ok);
		close(s[i].fd);
		close(s[i].ep);
	}
	free(s);
}

/* The kernel polls, then reads, an eventfd by itself. */
static void ESCAPE_aio_POLL_and_PREAD_of_an_eventfd(void **state)
{
	aio_context_t ctx = 0;
	struct iocb cb = {0}, *list[1] = {&cb};
	struct io_event done = {0};
	int fd = efd_new(0, EFD_NONBLOCK);
	uint64_t v = 0;

	(void)state;
	if (aio_setup_in_turn(1, &ctx) == -1) {
		close(fd);
		SKIP("no kernel AIO");
	}
	cb.aio_lio_opcode = IOCB_CMD_POLL;
	cb.aio_fildes = (uint32_t)fd;
	cb.aio_buf = POLLIN;
	assert_int_equal(syscall(SYS_io_submit, ctx, 1L, list), 1);
	efd_add(fd, 5);
	assert_int_equal(syscall(SYS_io_getevents, ctx, 1L, 1L, &done, NULL), 1);
	assert_int_equal(done.res & POLLIN, POLLIN);
	memset(&cb, 0, sizeof(cb));
	cb.aio_lio_opcode = IOCB_CMD_PREAD;
	cb.aio_fildes = (uint32_t)fd;
	cb.aio_buf = (uintptr_t)&v;
	cb.aio_nbytes = sizeof(v);
	assert_int_equal(syscall(SYS_io_submit, ctx, 1L, list), 1);
	assert_int_equal(syscall(SYS_io_getevents, ctx, 1L, 1L, &done, NULL), 1);
	assert_int_equal(done.res, 8);
	assert_int_equal(v, 5);
	assert_int_equal(get(fd), UINT64_MAX);
	assert_ok(syscall(SYS_io_destroy, ctx));
	close(fd);
}

/* A ring of the kernel that tells an eventfd of each completion. */
static void ESCAPE_io_uring_registered_eventfd(void **state)
{
	struct io_uring_params par;
	struct world w = world_made();
	int ring, fd = w.fd[WF];
	size_t size;
	char *sq;
	struct io_uring_sqe *sqe;
	unsigned int *tail;

	(void)state;
	memset(&par, 0, sizeof(par));
	ring = (int)syscall(SYS_io_uring_setup, 1, &par);
	if (ring == -1) {
		world_close(&w);
		SKIP("no io_uring for this user");
	}
	size = par.sq_off.array + par.sq_entries * sizeof(unsigned int);
	sq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
		  IORING_OFF_SQ_RING);
	assert_true(sq != MAP_FAILED);
	sqe = mmap(NULL, sizeof(*sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
		   IORING_OFF_SQES);
	assert_true((void *)sqe != MAP_FAILED);
	assert_ok(syscall(SYS_io_uring_register, ring, IORING_REGISTER_EVENTFD, &fd, 1));
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_NOP;
	((unsigned int *)(void *)(sq + par.sq_off.array))[0] = 0;
	tail = (unsigned int *)(void *)(sq + par.sq_off.tail);
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	assert_int_equal(assert_ok(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS,
					   NULL, (size_t)0)),
			 1);
	assert_int_equal(efd_take(fd), 1);
	assert_ok(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_EVENTFD, NULL, 0));
	munmap(sqe, sizeof(*sqe));
	munmap(sq, size);
	close(ring);
	assert_int_equal(world_check(&w), 0);
	world_close(&w);
}

/* ---- threads that leave a call by other doors ---- */

static void ESCAPE_pthread_cancel_of_sleepers(void **state)
{
	(void)state;
	for (int how = 0; how < SLEEPS; how++) {
		struct sleeper *s = calloc(1, sizeof(*s));
		int inner = ep_new(), p[2];

		assert_ok(pipe(p));
		s->how = (enum sleep_how)how;
		s->fd = efd_new(0, blocks((enum sleep_how)how) ? 0 : EFD_NONBLOCK);
		s->ep = ep_new();
		if (how == IN_WRITE)
			efd_add(s->fd, COUNT_MAX);
		assert_ok(ep_ctl(inner, EPOLL_CTL_ADD, s->fd, EPOLLIN, 6));
		assert_ok(ep_ctl(s->ep, EPOLL_CTL_ADD, how == IN_EPOLL_OUTER ? inner : s->fd,
				 how == IN_WRITE ? EPOLLOUT : EPOLLIN, 5));
		if (how == IN_EPOLL_MIXED)
			assert_ok(ep_ctl(s->ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 7));
		thread_start(&s->t, sleeper_main, s);
		assert_true(thread_asleep(&s->t));
		assert_int_equal(pthread_cancel(s->t.id), 0);
		assert_true(thread_join(&s->t, SOON_MS));
		assert_false(thread_done(&s->t));
		/* Nothing is held, nothing is lost. */
		if (how == IN_WRITE)
			assert_int_equal(efd_take(s->fd), COUNT_MAX);
		efd_add(s->fd, 3);
		assert_true(ep_one(s->ep, how == IN_WRITE ? EPOLLOUT : EPOLLIN, 5));
		assert_int_equal(efd_take(s->fd), 3);
		close(s->fd);
		close(s->ep);
		close(inner);
		close(p[0]);
		close(p[1]);
		free(s);
	}
}

static sigjmp_buf away;

static void on_signal_jump(int sig)
{
	(void)sig;
	siglongjmp(away, 1);
}

struct jumper {
	struct test_thread t;
	int fd;
	int ep;
	volatile int jumps;
};

/* Jumps out of a blocked read, then out of a wait, by the signal handler. */
static void *jumper_main(void *arg)
{
	struct jumper *j = arg;
	struct epoll_event ev;

	if (sigsetjmp(away, 1) == 0)
		get(j->fd);
	__atomic_store_n(&j->jumps, 1, __ATOMIC_RELEASE);
	if (sigsetjmp(away, 1) == 0)
		epoll_wait(j->ep, &ev, 1, -1);
	__atomic_store_n(&j->jumps, 2, __ATOMIC_RELEASE);
	return NULL;
}

static void ESCAPE_siglongjmp_out_of_sleeping_calls(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal_jump}, old;
	struct jumper *j = calloc(1, sizeof(*j));
	int64_t end = now_ms() + SOON_MS;

	(void)state;
	j->fd = efd_new(0, 0);
	j->ep = ep_new();
	assert_ok(ep_ctl(j->ep, EPOLL_CTL_ADD, j->fd, EPOLLIN, 1));
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	thread_start(&j->t, jumper_main, j);
	assert_true(thread_asleep(&j->t));
	pthread_kill(j->t.id, SIGUSR1);
	while (__atomic_load_n(&j->jumps, __ATOMIC_ACQUIRE) < 1 && now_ms() < end)
		sleep_ms(1);
	assert_int_equal(__atomic_load_n(&j->jumps, __ATOMIC_ACQUIRE), 1);
	assert_true(thread_asleep(&j->t));
	pthread_kill(j->t.id, SIGUSR1);
	assert_true(thread_join(&j->t, SOON_MS));
	assert_int_equal(__atomic_load_n(&j->jumps, __ATOMIC_ACQUIRE), 2);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	efd_add(j->fd, 2);
	assert_true(ep_one(j->ep, EPOLLIN, 1));
	assert_int_equal(efd_take(j->fd), 2);
	close(j->fd);
	close(j->ep);
	free(j);
}

int main(int argc, char **argv)
{
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const struct CMUnitTest escape[] = {
		cmocka_unit_test(ESCAPE_fork_child_has_all),
		cmocka_unit_test(ESCAPE_fork_parent_keeps_all),
		cmocka_unit_test(ESCAPE_fork_keeps_the_ready_order),
		cmocka_unit_test(ESCAPE_fork_ready_order_of_eventfds_alone),
		cmocka_unit_test(ESCAPE_fork_both_sides_talk),
		cmocka_unit_test(ESCAPE_fork_of_a_fork),
		cmocka_unit_test(ESCAPE_fork_many_times),
		cmocka_unit_test(ESCAPE_fork_when_all_is_shared),
		cmocka_unit_test(ESCAPE_fork_with_handlers_that_make_objects),
		cmocka_unit_test(ESCAPE_fork_with_handlers_from_before_the_start),
		cmocka_unit_test(ESCAPE_fork_without_proc_loses_no_edge),
		cmocka_unit_test(ESCAPE_fork_by_a_handler_in_a_wait),
		cmocka_unit_test(ESCAPE_fork_leaves_only_numbers_of_the_program),
		cmocka_unit_test(ESCAPE_fork_then_each_side_makes_its_own),
		cmocka_unit_test(ESCAPE_fork_close_in_one_process_only),
		cmocka_unit_test(ESCAPE_fork_with_nested_epolls),
		cmocka_unit_test(ESCAPE_fork_at_the_top_of_the_counter),
		cmocka_unit_test(ESCAPE_fork_with_an_orphaned_item),
		cmocka_unit_test(ESCAPE_fork_by_other_names),
		cmocka_unit_test(ESCAPE_clone),
		cmocka_unit_test(ESCAPE_daemon),
		cmocka_unit_test(ESCAPE_fork_beside_sleepers_woken_by_the_parent),
		cmocka_unit_test(ESCAPE_fork_beside_sleepers_woken_by_the_child),
		cmocka_unit_test(ESCAPE_fork_beside_sleepers_woken_after_the_child),
		cmocka_unit_test(ESCAPE_fork_beside_a_reader_whose_number_is_anothers),
		cmocka_unit_test(ESCAPE_fork_beside_a_writer_whose_number_is_anothers),
		cmocka_unit_test(ESCAPE_fork_beside_traffic),
		cmocka_unit_test(ESCAPE_vfork_and_exec),
		cmocka_unit_test(ESCAPE_vfork_and_fork),
		cmocka_unit_test(ESCAPE_vfork_and_exit),
		cmocka_unit_test(ESCAPE_posix_spawn),
		cmocka_unit_test(ESCAPE_posix_spawn_with_file_actions),
		cmocka_unit_test(ESCAPE_system),
		cmocka_unit_test(ESCAPE_popen),
		cmocka_unit_test(ESCAPE_fork_and_exec),
		cmocka_unit_test(ESCAPE_exec_without_fork),
		cmocka_unit_test(ESCAPE_exec_from_another_thread),
		cmocka_unit_test(ESCAPE_exec_that_fails),
		cmocka_unit_test(ESCAPE_exec_with_CLOEXEC),
		cmocka_unit_test(ESCAPE_exec_with_the_epoll_alone),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_sendmsg_to_a_child),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_sendmmsg_to_a_child),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_in_a_control_without_end),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_within_the_process),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_closed_while_in_flight),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_of_an_epoll),
		cmocka_unit_test(ESCAPE_SCM_RIGHTS_of_a_number_that_becomes_an_eventfd),
		cmocka_unit_test(ESCAPE_pidfd_getfd),
		cmocka_unit_test(ESCAPE_dup_is_the_same_eventfd),
		cmocka_unit_test(ESCAPE_dup_of_an_epoll_is_the_same_set),
		cmocka_unit_test(ESCAPE_dup2_over_a_watched_eventfd),
		cmocka_unit_test(ESCAPE_dup2_over_a_watched_eventfd_that_is_refused),
		cmocka_unit_test(ESCAPE_reads_and_writes_of_an_epoll_are_none),
		cmocka_unit_test(ESCAPE_close_range_and_closefrom),
		cmocka_unit_test(ESCAPE_close_of_a_number_beside_an_escape),
		cmocka_unit_test(ESCAPE_dup2_over_a_number_beside_an_escape),
		cmocka_unit_test(ESCAPE_close_range_of_a_number_beside_an_escape),
		cmocka_unit_test(ESCAPE_close_range_of_an_epoll),
		cmocka_unit_test(ESCAPE_close_range_ends_the_last_first),
		cmocka_unit_test(ESCAPE_close_range_CLOEXEC),
		cmocka_unit_test(ESCAPE_no_number_left_below_a_lowered_hard_limit),
		cmocka_unit_test(ESCAPE_no_number_left_below_a_limit_lowered_by_a_thread),
		cmocka_unit_test(ESCAPE_no_number_left_with_a_low_hard_limit),
		cmocka_unit_test(ESCAPE_what_is_started_has_the_limit_of_descriptors),
		cmocka_unit_test(ESCAPE_unshare_of_the_descriptor_table),
		cmocka_unit_test(ESCAPE_splice_and_the_like),
		cmocka_unit_test(ESCAPE_fcntl),
		cmocka_unit_test(ESCAPE_ioctl),
		cmocka_unit_test(ESCAPE_stdio),
		cmocka_unit_test(ESCAPE_stdio_at_numbers_of_standard_streams),
		cmocka_unit_test(ESCAPE_stdio_at_a_number_that_was_replaced),
		cmocka_unit_test(ESCAPE_closedir_of_a_number_given_out_again),
		cmocka_unit_test(ESCAPE_dprintf),
		cmocka_unit_test(ESCAPE_proc_self_fd),
		cmocka_unit_test(ESCAPE_fstat),
		cmocka_unit_test(ESCAPE_poll_and_select_mixtures),
		cmocka_unit_test(ESCAPE_signalfd_and_timerfd_beside_eventfds),
		cmocka_unit_test(ESCAPE_aio_RESFD),
		cmocka_unit_test(ESCAPE_aio_RESFD_wakes_sleepers),
		cmocka_unit_test(ESCAPE_aio_POLL_and_PREAD_of_an_eventfd),
		cmocka_unit_test(ESCAPE_io_uring_registered_eventfd),
		cmocka_unit_test(ESCAPE_pthread_cancel_of_sleepers),
		cmocka_unit_test(ESCAPE_siglongjmp_out_of_sleeping_calls),
	};

	if (n <= 0)
		return 1;
	self[n] = '\0';
	if (argc > 1 && strncmp(argv[1], "--", 2) == 0)
		return helper(argc, argv) != 0;
	return run_group(escape);
}
