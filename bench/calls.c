/* SPDX-License-Identifier: MIT */
/*
 * Single calls of libc, one by one: what one of them takes, or a few that belong together, in a
 * program that has an epoll with an eventfd besides. Most have to do with descriptors of the kernel
 * alone, which shows what the drop-in costs where it has nothing to offer.
 */
#include "bench.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* A round is short beside a time slice, so that most are measured without a break. */
#define ROUND_NS 100000
#define MAX_FDS 64
/* More than any row has open. */
#define DESCRIPTORS 256
/* No descriptor has a number as high as that. */
#define FAR 4000
/* Nothing that is read or written comes to its end. */
#define FILE_SIZE (1 << 30)

static struct {
	const char *call;
	unsigned int rounds;
} opt = {.rounds = 601};

struct row {
	const char *name;
	/* What is made beforehand: `fds`, sockets first. */
	unsigned int sockets, eventfds;
	/* All of them can be read. */
	bool ready;
	/* Called once after that; may be NULL. */
	void (*prepare)(void);
	/* What is timed. */
	void (*call)(void);
};

static const struct row *row;

static int fds[MAX_FDS], peers[MAX_FDS];
static unsigned int n_fds;
static int ep, fd, other;
static int pipes[2][2];
static struct pollfd polled[MAX_FDS];
static fd_set selected;
static uint64_t one = 1;

/* Nothing is measured where a call did something else than it should. */
static void must(bool ok)
{
	if (!ok)
		bench_die("%s: a call failed, or did not do what it should: %s", row->name,
			  strerror(errno));
}

/* What was just made, if it was. */
static void close_one(int number)
{
	must(number >= 0 && !close(number));
}

static void close_both(const int *ends)
{
	close_one(ends[0]);
	close_one(ends[1]);
}

/* What is made beforehand. */

static void make_fds(void)
{
	for (unsigned int i = 0; i < row->sockets; i++) {
		int pair[2];

		must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
		must(!row->ready || write(pair[1], &one, sizeof(one)) == sizeof(one));
		fds[n_fds] = pair[0];
		peers[n_fds++] = pair[1];
	}
	/* As a semaphore it stays readable for four thousand million reads. */
	for (unsigned int i = 0; i < row->eventfds; i++)
		fds[n_fds++] = bench_eventfd(row->ready ? UINT32_MAX : 0,
					     EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
}

/* In memory, so that no file system is measured. */
static int make_file(void)
{
	int file = memfd_create("calls", MFD_CLOEXEC);

	must(file >= 0 && !ftruncate(file, FILE_SIZE));
	return file;
}

static void prepare_epoll(void)
{
	ep = bench_epoll();
}

static void prepare_watches(void)
{
	prepare_epoll();
	for (unsigned int i = 0; i < n_fds; i++)
		bench_ctl(ep, EPOLL_CTL_ADD, fds[i], EPOLLIN, i);
}

static void prepare_poll(void)
{
	for (unsigned int i = 0; i < n_fds; i++)
		polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
}

static void prepare_select(void)
{
	for (unsigned int i = 0; i < n_fds; i++) {
		must(fds[i] < FD_SETSIZE);
		FD_SET(fds[i], &selected);
	}
}

static void prepare_pipes(void)
{
	must(!pipe2(pipes[0], O_CLOEXEC) && !pipe2(pipes[1], O_CLOEXEC));
}

static void prepare_timer(void)
{
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	must(fd >= 0);
}

static void prepare_file(void)
{
	fd = make_file();
	must(pwrite(fd, &one, sizeof(one), 0) == sizeof(one));
}

static void prepare_files(void)
{
	fd = make_file();
	other = make_file();
}

static void *sleeper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void prepare_files_and_thread(void)
{
	prepare_files();
	bench_thread(sleeper, NULL);
}

static void prepare_range(void)
{
	if (close_range(FAR, ~0u, 0) && errno == ENOSYS)
		bench_skip("this kernel has no close_range");
}

/* Whether a child starts on another CPU would be most of its time. */
static void prepare_one_cpu(void)
{
	int cpu = 0;

	must(bench_cpus(&cpu, 1) == 1);
	bench_pin(cpu);
}

/* What is timed: reading and writing. */

static void write_fd(void)
{
	must(write(fds[0], &one, sizeof(one)) == sizeof(one));
}

static void read_fd(void)
{
	uint64_t value;

	must(read(fds[0], &value, sizeof(value)) == sizeof(value));
}

static void through_pipe(void)
{
	uint64_t value;

	must(write(pipes[0][1], &one, sizeof(one)) == sizeof(one) &&
	     read(pipes[0][0], &value, sizeof(value)) == sizeof(value));
}

static void through_pipes(void)
{
	uint64_t value;

	must(write(pipes[0][1], &one, sizeof(one)) == sizeof(one) &&
	     splice(pipes[0][0], NULL, pipes[1][1], NULL, sizeof(one), 0) == sizeof(one) &&
	     read(pipes[1][0], &value, sizeof(value)) == sizeof(value));
}

static void through_socket(void)
{
	uint64_t value;

	must(write(peers[0], &one, sizeof(one)) == sizeof(one) &&
	     read(fds[0], &value, sizeof(value)) == sizeof(value));
}

static void vectors_through_socket(void)
{
	uint64_t value[2];
	struct iovec out[2] = {{&one, sizeof(one)}, {&one, sizeof(one)}};
	struct iovec in[2] = {{&value[0], sizeof(one)}, {&value[1], sizeof(one)}};

	must(writev(peers[0], out, 2) == 2 * sizeof(one) &&
	     readv(fds[0], in, 2) == 2 * sizeof(one));
}

static void message_through_socket(void)
{
	uint64_t value;
	struct iovec out = {&one, sizeof(one)}, in = {&value, sizeof(value)};
	struct msghdr sent = {.msg_iov = &out, .msg_iovlen = 1};
	struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1};

	must(sendmsg(peers[0], &sent, MSG_NOSIGNAL) == sizeof(one) &&
	     recvmsg(fds[0], &got, 0) == sizeof(value));
}

static void file_through_socket(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} rights = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}}, came = {0};
	uint64_t value;
	struct iovec out = {&one, sizeof(one)}, in = {&value, sizeof(value)};
	struct msghdr sent = {.msg_iov = &out,
			      .msg_iovlen = 1,
			      .msg_control = &rights,
			      .msg_controllen = sizeof(rights)};
	struct msghdr got = {.msg_iov = &in,
			     .msg_iovlen = 1,
			     .msg_control = &came,
			     .msg_controllen = sizeof(came)};
	int number;

	memcpy(CMSG_DATA(&rights.head), &fd, sizeof(fd));
	must(sendmsg(peers[0], &sent, MSG_NOSIGNAL) == sizeof(one) &&
	     recvmsg(fds[0], &got, MSG_CMSG_CLOEXEC) == sizeof(value) &&
	     got.msg_controllen >= CMSG_LEN(sizeof(int)));
	memcpy(&number, CMSG_DATA(&came.head), sizeof(number));
	close_one(number);
}

static void read_file(void)
{
	char c;

	must(read(fd, &c, 1) == 1);
}

static void write_file(void)
{
	must(write(fd, &one, 1) == 1);
}

static void pread_file(void)
{
	uint64_t value;

	must(pread(fd, &value, sizeof(value), 0) == sizeof(value) && value == one);
}

static void seek_file(void)
{
	must(lseek(fd, 1, SEEK_SET) == 1);
}

static void map_file(void)
{
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	must(at != MAP_FAILED && !munmap(at, 4096));
}

/* Waiting. */

static int expected(void)
{
	return row->ready ? (int)n_fds : 0;
}

static void wait_epoll(void)
{
	struct epoll_event ev[MAX_FDS];

	must(epoll_wait(ep, ev, MAX_FDS, 0) == expected());
}

static void wait_poll(void)
{
	must(poll(polled, n_fds, 0) == expected());
}

static void wait_select_to(int highest)
{
	struct timeval none = {0};
	fd_set set = selected;

	must(select(highest + 1, &set, NULL, NULL, &none) == expected());
}

static void wait_select(void)
{
	wait_select_to(fds[n_fds - 1]);
}

static void wait_select_wide(void)
{
	wait_select_to(FD_SETSIZE - 1);
}

/* Watches. */

static void modify(void)
{
	bench_ctl(ep, EPOLL_CTL_MOD, fds[0], EPOLLIN, 0);
}

static void add_and_delete(void)
{
	bench_ctl(ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 0);
	bench_ctl(ep, EPOLL_CTL_DEL, fds[0], 0, 0);
}

static void set_timer(void)
{
	static const struct itimerspec later = {.it_value = {.tv_sec = 60}};

	must(!timerfd_settime(fd, 0, &later, NULL));
}

/* Descriptors that come and go. */

static void make_epoll(void)
{
	close_one(epoll_create1(EPOLL_CLOEXEC));
}

static void make_epoll_and_add(void)
{
	int epoll = bench_epoll();

	bench_ctl(epoll, EPOLL_CTL_ADD, fds[0], EPOLLIN, 0);
	close_one(epoll);
}

static void make_eventfd(void)
{
	close_one(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

static void make_timer(void)
{
	close_one(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

static void make_pipe(void)
{
	int ends[2];

	must(!pipe2(ends, O_CLOEXEC));
	close_both(ends);
}

static void make_sockets(void)
{
	int ends[2];

	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	close_both(ends);
}

static void open_file(void)
{
	close_one(open("/dev/null", O_RDWR | O_CLOEXEC));
}

static void dup_file(void)
{
	close_one(dup(fd));
}

static void dup_fd(void)
{
	close_one(dup(fds[0]));
}

static void dup2_file(void)
{
	must(dup2(fd, other) == other);
}

static void close_far(void)
{
	must(!close_range(FAR, ~0u, 0));
}

/* All else. */

static void get_flags(void)
{
	must(fcntl(fds[0], F_GETFL) >= 0);
}

static void ask_bytes(void)
{
	int n;

	must(!ioctl(fds[0], FIONREAD, &n) && n == 0);
}

static void nothing(int sig)
{
	(void)sig;
}

static void set_handler(void)
{
	struct sigaction sa = {.sa_handler = nothing};

	must(!sigaction(SIGUSR1, &sa, NULL));
}

static void set_mask(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	must(!sigprocmask(SIG_BLOCK, &set, NULL));
}

static void call_kernel(void)
{
	must(syscall(SYS_getpid) > 0);
}

static void *no_work(void *arg)
{
	return arg;
}

static void run_thread(void)
{
	must(!pthread_join(bench_thread(no_work, NULL), NULL));
}

static void run_child(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(0);
	must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static const struct row rows[] = {
	{"write-eventfd", .eventfds = 1, .call = write_fd},
	{"read-eventfd", .eventfds = 1, .ready = true, .call = read_fd},
	{"pipe", .prepare = prepare_pipes, .call = through_pipe},
	{"pipe-splice", .prepare = prepare_pipes, .call = through_pipes},
	{"socket", .sockets = 1, .call = through_socket},
	{"socket-vectors", .sockets = 1, .call = vectors_through_socket},
	{"socket-message", .sockets = 1, .call = message_through_socket},
	{"socket-rights", .sockets = 1, .prepare = prepare_file, .call = file_through_socket},
	{"read-file", .prepare = prepare_file, .call = read_file},
	{"write-file", .prepare = prepare_file, .call = write_file},
	{"pread-file", .prepare = prepare_file, .call = pread_file},
	{"lseek-file", .prepare = prepare_file, .call = seek_file},
	{"mmap-file", .prepare = prepare_file, .call = map_file},
	{"wait-socket", .sockets = 1, .prepare = prepare_watches, .call = wait_epoll},
	{"wait-eventfd", .eventfds = 1, .prepare = prepare_watches, .call = wait_epoll},
	{"wait-both", 1, 1, .prepare = prepare_watches, .call = wait_epoll},
	{"wait-socket-ready", 1, 0, true, prepare_watches, wait_epoll},
	{"wait-eventfd-ready", 0, 1, true, prepare_watches, wait_epoll},
	{"wait-both-ready", 1, 1, true, prepare_watches, wait_epoll},
	{"mod-socket", .sockets = 1, .prepare = prepare_watches, .call = modify},
	{"mod-eventfd", .eventfds = 1, .prepare = prepare_watches, .call = modify},
	{"add-del-socket", .sockets = 1, .prepare = prepare_epoll, .call = add_and_delete},
	{"add-del-eventfd", .eventfds = 1, .prepare = prepare_epoll, .call = add_and_delete},
	{"poll-socket", .sockets = 1, .prepare = prepare_poll, .call = wait_poll},
	{"poll-eventfd", .eventfds = 1, .prepare = prepare_poll, .call = wait_poll},
	{"poll-both", 1, 1, .prepare = prepare_poll, .call = wait_poll},
	{"poll-sockets", .sockets = 64, .prepare = prepare_poll, .call = wait_poll},
	{"select-socket", .sockets = 1, .prepare = prepare_select, .call = wait_select},
	{"select-eventfd", .eventfds = 1, .prepare = prepare_select, .call = wait_select},
	{"select-sockets", .sockets = 64, .prepare = prepare_select, .call = wait_select},
	{"select-wide", .sockets = 1, .prepare = prepare_select, .call = wait_select_wide},
	{"make-epoll", .call = make_epoll},
	{"make-epoll-add", .eventfds = 1, .call = make_epoll_and_add},
	{"make-eventfd", .call = make_eventfd},
	{"make-timerfd", .call = make_timer},
	{"make-pipe", .call = make_pipe},
	{"make-sockets", .call = make_sockets},
	{"open-file", .call = open_file},
	{"dup-file", .prepare = prepare_file, .call = dup_file},
	{"dup-eventfd", .eventfds = 1, .call = dup_fd},
	{"dup2-file", .prepare = prepare_files, .call = dup2_file},
	{"dup2-file-threads", .prepare = prepare_files_and_thread, .call = dup2_file},
	{"close-range", .prepare = prepare_range, .call = close_far},
	{"settime", .prepare = prepare_timer, .call = set_timer},
	{"fcntl-socket", .sockets = 1, .call = get_flags},
	{"fcntl-eventfd", .eventfds = 1, .call = get_flags},
	{"ioctl-socket", .sockets = 1, .call = ask_bytes},
	{"sigaction", .call = set_handler},
	{"sigprocmask", .call = set_mask},
	{"syscall", .call = call_kernel},
	{"thread", .prepare = prepare_one_cpu, .call = run_thread},
	{"fork", .prepare = prepare_one_cpu, .call = run_child},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static uint64_t round_of(uint64_t calls)
{
	uint64_t start = bench_now();

	for (uint64_t i = 0; i < calls; i++)
		row->call();
	return bench_now() - start;
}

static double measure(uint64_t *calls)
{
	struct bench_groups rounds = {.least = 1};

	/* Twice, since the first round may be long for other reasons. */
	for (*calls = 1; round_of(*calls) < ROUND_NS || round_of(*calls) < ROUND_NS;)
		*calls *= 2;
	for (unsigned int i = 0; i < opt.rounds; i++)
		bench_groups_add(&rounds, round_of(*calls), *calls);
	return bench_groups_median(&rounds);
}

static void list_calls(void)
{
	for (size_t i = 0; i < N_ROWS; i++)
		printf("                %s\n", rows[i].name);
}

static const char about[] = "What a call takes, or a few that belong together.";

static const struct bench_option options[] = {
	{"call", "one of", .text = &opt.call, .value = "NAME", .list = list_calls},
	{"rounds", "that are timed; their median is shown", .count = &opt.rounds, .min = 1,
	 .max = 100000},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct epoll_event ev;
	uint64_t calls;
	int beside, efd;
	double ns;

	bench_options(argc, argv, about, options);
	if (!opt.call)
		bench_usage_error("--call is missing");
	for (size_t i = 0; i < N_ROWS && !row; i++)
		if (!strcmp(opt.call, rows[i].name))
			row = &rows[i];
	if (!row)
		bench_usage_error("there is no call '%s'", opt.call);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	if (bench_raise_nofile(DESCRIPTORS) < DESCRIPTORS)
		bench_skip("too few descriptors are permitted (ulimit -Hn)");
	beside = bench_epoll();
	efd = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	bench_ctl(beside, EPOLL_CTL_ADD, efd, EPOLLIN, 1);
	make_fds();
	if (row->prepare)
		row->prepare();
	ns = measure(&calls);
	/* The two are as they were. */
	must(write(efd, &one, sizeof(one)) == sizeof(one) && bench_wait(beside, &ev, 1, 0) == 1 &&
	     ev.data.u64 == 1);

	printf("program=calls ");
	/* After a fork the two are the kernel's, and new ones are served. */
	bench_print_served(bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	printf("call=%s rounds=%u calls=%" PRIu64 " ns=%.1f ok=1\n", row->name, opt.rounds, calls,
	       ns);
	return 0;
}
