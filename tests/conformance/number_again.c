/* SPDX-License-Identifier: MIT */
/*
 * A number that was closed by an instruction of the program's own, past libc, and is given out
 * again; and one that libc closes within itself. No rule says so; a number means what it was given
 * for, whoever has closed what was there.
 */
#include "waiting.h"

#include <dirent.h>
#include <fts.h>
#include <mntent.h>
#include <mqueue.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

/* --- what was there ------------------------------------------------------------------- */

static int new_eventfd(void)
{
	return eventfd(3, EFD_NONBLOCK);
}

static int new_epoll(void)
{
	return epoll_create1(0);
}

static int new_timer(void)
{
	return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
}

static int keep;

/* An epoll that has to do with what is ours, and that the process knows by another number, too. */
static int new_busy_epoll(void)
{
	int fd = epoll_create1(0), e = eventfd(1, EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN};

	assert_ok(epoll_ctl(fd, EPOLL_CTL_ADD, e, &ev));
	assert_int_equal(epoll_wait(fd, &ev, 1, 0), 1);
	keep = e;
	return fd;
}

static int new_pipe_end(void)
{
	int p[2];

	assert_ok(pipe2(p, O_NONBLOCK));
	keep = p[1];
	return p[0];
}

/* --- what is given the number --------------------------------------------------------- */

/* Nothing is to be read from any of them. */
static FILE *stream;
static DIR *folder;

static int by_open(void)
{
	return open("/dev/null", O_RDWR);
}

static int by_openat(void)
{
	return openat(AT_FDCWD, "/dev/null", O_RDWR);
}

static int by_raw_openat(void)
{
	return (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
}

static int by_fopen(void)
{
	stream = fopen("/dev/null", "r");
	return fileno(stream);
}

static int by_opendir(void)
{
	folder = opendir("/");
	return dirfd(folder);
}

static int null_device = -1;

static int by_dup(void)
{
	return dup(null_device);
}

static int by_fcntl(void)
{
	return fcntl(null_device, F_DUPFD, 0);
}

static int by_fcntl_cloexec(void)
{
	return fcntl(null_device, F_DUPFD_CLOEXEC, 0);
}

static int by_raw_dup(void)
{
	return (int)syscall(SYS_dup, null_device);
}

static int by_socket(void)
{
	return socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
}

static int by_raw_socket(void)
{
	return (int)syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
}

static int listener = -1, client = -1;

static int by_accept(void)
{
	return accept(listener, NULL, NULL);
}

static int by_accept4(void)
{
	return accept4(listener, NULL, NULL, SOCK_NONBLOCK);
}

static int by_timerfd(void)
{
	return timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
}

static int by_raw_inotify(void)
{
	return (int)syscall(SYS_inotify_init1, IN_NONBLOCK);
}

static int by_pipe(void)
{
	int p[2];

	assert_ok(pipe2(p, O_NONBLOCK));
	keep = p[1];
	return p[0];
}

static int by_raw_pipe(void)
{
	int p[2];

	assert_ok((int)syscall(SYS_pipe2, p, O_NONBLOCK));
	keep = p[1];
	return p[0];
}

static int by_socketpair(void)
{
	int p[2];

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p));
	keep = p[1];
	return p[0];
}

static int by_raw_socketpair(void)
{
	int p[2];

	assert_ok((int)syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p));
	keep = p[1];
	return p[0];
}

static void listen_end(void)
{
	close(client);
	close(listener);
}

static const struct {
	const char *name;
	int (*make)(void);
	/* S_IF..., or 0 for what has no type. */
	mode_t type;
	bool two;
} ways[] = {
	{"open", by_open, S_IFCHR, false},
	{"openat", by_openat, S_IFCHR, false},
	{"raw openat", by_raw_openat, S_IFCHR, false},
	{"fopen", by_fopen, S_IFCHR, false},
	{"opendir", by_opendir, S_IFDIR, false},
	{"dup", by_dup, S_IFCHR, false},
	{"raw dup", by_raw_dup, S_IFCHR, false},
	{"fcntl", by_fcntl, S_IFCHR, false},
	{"fcntl cloexec", by_fcntl_cloexec, S_IFCHR, false},
	{"socket", by_socket, S_IFSOCK, false},
	{"raw socket", by_raw_socket, S_IFSOCK, false},
	{"accept", by_accept, S_IFSOCK, false},
	{"accept4", by_accept4, S_IFSOCK, false},
	{"timerfd", by_timerfd, 0, false},
	{"raw inotify", by_raw_inotify, 0, false},
	{"pipe", by_pipe, S_IFIFO, true},
	{"raw pipe", by_raw_pipe, S_IFIFO, true},
	{"socketpair", by_socketpair, S_IFSOCK, true},
	{"raw socketpair", by_raw_socketpair, S_IFSOCK, true},
};

/* Calls that a libc in front of the kernel's would answer by itself. */
static void check_means(int fd, mode_t type, const char *name)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI};
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 7};
	struct itimerspec its;
	uint64_t v = 99;
	struct stat st;
	ssize_t r;
	int ep;

	print_message("  %s\n", name);
	assert_ok(fstat(fd, &st));
	assert_int_equal(st.st_mode & S_IFMT, type);
	r = type == S_IFSOCK ? recv(fd, &v, sizeof(v), MSG_DONTWAIT) : read(fd, &v, sizeof(v));
	if (type == S_IFCHR) {
		assert_int_equal(r, 0);
		assert_int_equal(poll(&p, 1, 0), 1);
		assert_int_equal(p.revents, POLLIN);
	} else if (type == S_IFDIR) {
		assert_int_equal(r, -1);
		assert_int_equal(errno, EISDIR);
	} else {
		assert_int_equal(r, -1);
		assert_int_equal(errno, EAGAIN);
		assert_int_equal(poll(&p, 1, 0), 0);
	}
	assert_errno(epoll_wait(fd, &ev, 1, 0), EINVAL);
	if (type)
		assert_errno(timerfd_gettime(fd, &its), EINVAL);
	ep = ep_new();
	if (type == S_IFDIR || type == S_IFCHR) {
		assert_errno(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), EPERM);
	} else {
		assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
		assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
	}
	close(ep);
	if (type == S_IFIFO) {
		assert_int_equal(write(keep, "abc", 3), 3);
		assert_int_equal(read(fd, &v, sizeof(v)), 3);
	}
}

static void given_again(int (*before)(void))
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int fd, number;

		null_device = open("/dev/null", O_RDWR);
		tcp_waiting(&listener, &client);
		keep = -1;
		number = before();
		assert_true(number >= 0);
		if (ways[i].two && keep >= 0)
			close(keep);
		assert_int_equal(own_close(number), 0);
		fd = ways[i].make();
		assert_int_equal(fd, number);
		check_means(fd, ways[i].type, ways[i].name);
		if (stream)
			fclose(stream);
		else if (folder)
			closedir(folder);
		else
			close(fd);
		stream = NULL;
		folder = NULL;
		if (keep >= 0)
			close(keep);
		listen_end();
		close(null_device);
	}
}

static void number_of_an_eventfd_given_again(void **state)
{
	(void)state;
	given_again(new_eventfd);
}

static void number_of_an_epoll_given_again(void **state)
{
	(void)state;
	given_again(new_epoll);
}

static void number_of_a_busy_epoll_given_again(void **state)
{
	(void)state;
	given_again(new_busy_epoll);
}

static void number_of_a_timer_given_again(void **state)
{
	(void)state;
	given_again(new_timer);
}

static void number_of_a_pipe_given_again(void **state)
{
	(void)state;
	given_again(new_pipe_end);
}

/* What was closed has left the epoll, and its other number goes on. */
static void what_was_there_is_gone_from_its_epoll(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN}, out;
	int ep = ep_new(), e = efd_new(1, EFD_NONBLOCK), other, fd;

	(void)state;
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev));
	assert_int_equal(own_close(e), 0);
	fd = open("/dev/null", O_RDONLY);
	assert_int_equal(fd, e);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	close(fd);

	e = efd_new(1, EFD_NONBLOCK);
	other = dup(e);
	assert_int_equal(own_close(e), 0);
	fd = open("/dev/null", O_RDONLY);
	assert_int_equal(fd, e);
	ev.data.u32 = 5;
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, other, &ev));
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 1);
	assert_int_equal(out.data.u32, 5);
	assert_int_equal(efd_take(other), 1);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	close(other);
	close(fd);
	close(ep);
}

/* A timer that has been set to later and later times, and is known to an epoll. */
static void timer_that_was_set_often_and_closed(void **state)
{
	struct itimerspec its = {.it_value.tv_sec = 100};
	struct epoll_event ev = {.events = EPOLLIN}, out;
	int ep = ep_new(), t = new_timer(), fd;

	(void)state;
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, t, &ev));
	for (int i = 0; i < 50; i++) {
		its.it_value.tv_sec++;
		assert_ok(timerfd_settime(t, 0, &its, NULL));
		assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	}
	assert_int_equal(own_close(t), 0);
	fd = open("/dev/null", O_RDWR);
	assert_int_equal(fd, t);
	assert_errno(timerfd_settime(fd, 0, &its, NULL), EINVAL);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	close(fd);
	/* And once more, with another there. */
	t = new_timer();
	assert_int_equal(t, fd);
	its.it_value.tv_sec = 0;
	its.it_value.tv_nsec = 1000000;
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, t, &ev));
	assert_ok(timerfd_settime(t, 0, &its, NULL));
	assert_int_equal(epoll_wait(ep, &out, 1, SOON_MS), 1);
	close(t);
	close(ep);
}

static void stands_at(int number)
{
	close(number);
	assert_int_equal(efd_new(3, EFD_NONBLOCK), number);
}

static void check_closed(int number)
{
	uint64_t v;

	assert_errno(read(number, &v, sizeof(v)), EBADF);
	assert_errno(fcntl(number, F_GETFD), EBADF);
}

/* libc closes the number that it knows, whatever that has come to mean. */
static void endmntent_closes_a_number_given_out_again(void **state)
{
	FILE *f = setmntent("/proc/mounts", "r");
	int number;

	(void)state;
	assert_non_null(f);
	number = fileno(f);
	stands_at(number);
	assert_int_equal(endmntent(f), 1);
	check_closed(number);
}

static void fts_close_closes_a_number_given_out_again(void **state)
{
	char file[] = "/dev/null", *paths[] = {file, NULL};
	FTS *f = fts_open(paths, FTS_PHYSICAL, NULL);
	int number;

	(void)state;
	assert_non_null(f);
	/* To the end, or libc does not free all of it. */
	while (fts_read(f))
		;
	number = f->fts_rfd;
	stands_at(number);
	/* It goes back to where it was by that number. */
	fts_close(f);
	check_closed(number);
}

static void mq_close_closes_a_number_given_out_again(void **state)
{
	char name[32];
	mqd_t q;

	(void)state;
	snprintf(name, sizeof(name), "/pollux-%d", (int)getpid());
	q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
	if (q == -1 && (errno == ENOSYS || errno == EACCES))
		SKIP("there are no queues here");
	assert_true(q >= 0);
	mq_unlink(name);
	stands_at(q);
	assert_ok(mq_close(q));
	check_closed(q);
}

/* What has no descriptor has none for any call, whoever may have one of his own there. */
static void number_that_nobody_was_given(void **state)
{
	int e = efd_new(1, EFD_NONBLOCK), ep = ep_new();
	struct epoll_event ev = {.events = EPOLLIN};

	(void)state;
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, e, &ev));
	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 1);
	for (int fd = 0; fd < 5000; fd++) {
		if (fcntl(fd, F_GETFD) != -1)
			continue;
		/* Where there is nothing at all, libc loses a buffer by it. */
		if (lseek(fd, 0, SEEK_CUR) != -1 || errno != EBADF)
			assert_errno(dprintf(fd, "12345678"), EBADF);
		assert_null(fdopen(fd, "w"));
		assert_int_equal(errno, EBADF);
	}
	close(ep);
	close(e);
}

/* The child of a vfork closes and opens numbers of its own. */
static void child_of_a_vfork_opens_what_it_has_closed(void **state)
{
	int e = efd_new(1, EFD_NONBLOCK);
	pid_t pid = vfork();

	(void)state;
	if (pid == 0) {
		close(e);
		_exit(open("/dev/null", O_RDONLY) != e);
	}
	child_passes(pid);
	assert_int_equal(efd_take(e), 1);
	close(e);
}

/*
 * A number that one thread is given by open while another puts an eventfd there: it is the eventfd
 * in the end, whoever was first.
 */
static pthread_barrier_t both;
static int wanted;

static void *opener(void *unused)
{
	(void)unused;
	for (;;) {
		int fd;

		pthread_barrier_wait(&both);
		if (wanted < 0)
			return NULL;
		fd = open("/dev/null", O_RDONLY);
		pthread_barrier_wait(&both);
		if (fd != wanted)
			close(fd);
		pthread_barrier_wait(&both);
	}
}

#define ROUNDS 3000

static void number_given_while_an_eventfd_is_put_there(void **state)
{
	int e = efd_new(0, EFD_NONBLOCK), ep = ep_new(), target = dup(e), bad = 0;
	struct epoll_event ev = {.events = EPOLLIN};
	pthread_t t;

	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer takes a number that two threads are given for a race");
	close(target);
	assert_ok(pthread_barrier_init(&both, NULL, 2));
	wanted = target;
	assert_int_equal(pthread_create(&t, NULL, opener, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t v = 1;
		int r;

		pthread_barrier_wait(&both);
		/* EBUSY: the other is just being given it. */
		while ((r = dup2(i % 2 ? e : ep, target)) < 0 && errno == EBUSY)
			;
		assert_int_equal(r, target);
		pthread_barrier_wait(&both);
		if (i % 2)
			bad += write(target, &v, sizeof(v)) != sizeof(v) ||
			       read(e, &v, sizeof(v)) != sizeof(v) || v != 1;
		else
			bad += epoll_ctl(target, EPOLL_CTL_ADD, e, &ev) != 0 ||
			       epoll_ctl(ep, EPOLL_CTL_DEL, e, NULL) != 0;
		bad += close(target) != 0;
		pthread_barrier_wait(&both);
	}
	wanted = -1;
	pthread_barrier_wait(&both);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(bad, 0);
	close(ep);
	close(e);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(number_of_an_eventfd_given_again),
		cmocka_unit_test(number_of_an_epoll_given_again),
		cmocka_unit_test(number_of_a_busy_epoll_given_again),
		cmocka_unit_test(number_of_a_timer_given_again),
		cmocka_unit_test(number_of_a_pipe_given_again),
		cmocka_unit_test(what_was_there_is_gone_from_its_epoll),
		cmocka_unit_test(timer_that_was_set_often_and_closed),
		cmocka_unit_test(endmntent_closes_a_number_given_out_again),
		cmocka_unit_test(fts_close_closes_a_number_given_out_again),
		cmocka_unit_test(mq_close_closes_a_number_given_out_again),
		cmocka_unit_test(number_that_nobody_was_given),
		cmocka_unit_test(child_of_a_vfork_opens_what_it_has_closed),
		cmocka_unit_test(number_given_while_an_eventfd_is_put_there),
	};

	return run_group(tests);
}
