/* SPDX-License-Identifier: MIT */
/*
 * The wait of the native API over descriptors and own objects, beside the kernel's own epoll, in
 * turn in one process.
 *
 *   sockets  write, wait, read on some of --descriptors TCP connections, no own object: what the
 *            mixed wait costs where it has nothing to offer. By CPU time.
 *   object   write, wait, read on an eventfd beside --descriptors idle ones: the kernel's, or an
 *            own one.
 */
#include "bench.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <pollux/epoll.h>
#include <pollux/eventfd.h>

#define MESSAGE 64
#define WAVE 64

static struct {
	unsigned int descriptors;
	unsigned int wave;
	unsigned int rounds;
	uint64_t events;
} opt = {.descriptors = 900, .wave = 1, .rounds = 15, .events = 100000};

static struct {
	/* The kernel's; and ours, which has the same. */
	int epfd, eventfd;
	struct pollux_ep *ep;
	struct pollux_efd *efd;
	int (*pair)[2];
} it;

static void check(bool right, const char *what)
{
	if (!right)
		bench_die("%s: %s", what, strerror(errno));
}

static int wait_for(bool ours, struct epoll_event *ev, int max)
{
	return ours ? pollux_ep_wait(it.ep, ev, max, POLLUX_FOREVER)
		    : epoll_wait(it.epfd, ev, max, -1);
}

static void socket_wave(bool ours, uint64_t n)
{
	static char message[MESSAGE];
	struct epoll_event ev[WAVE];
	unsigned int left = opt.wave;

	for (unsigned int i = 0; i < opt.wave; i++)
		check(send(it.pair[(n + i) % opt.descriptors][0], message, MESSAGE, 0) == MESSAGE,
		      "send");
	while (left) {
		int got = wait_for(ours, ev, WAVE);

		check(got > 0, "wait");
		for (int i = 0; i < got; i++)
			check(recv(ev[i].data.fd, message, MESSAGE, 0) == MESSAGE, "recv");
		left -= got;
	}
}

static void object_once(bool ours)
{
	struct epoll_event ev;
	uint64_t v = 1;

	check(ours ? !pollux_efd_write(it.efd, v, 0) : write(it.eventfd, &v, sizeof(v)) > 0,
	      "write");
	check(wait_for(ours, &ev, 1) == 1, "wait");
	check(ours ? !pollux_efd_read(it.efd, &v, 0) : read(it.eventfd, &v, sizeof(v)) > 0, "read");
}

static double sockets(bool ours)
{
	uint64_t start = bench_cpu(), waves = opt.events / opt.wave;

	for (uint64_t i = 0; i < waves; i++)
		socket_wave(ours, i * opt.wave);
	return (double)(bench_cpu() - start) / (waves * opt.wave);
}

static double object(bool ours)
{
	uint64_t start = bench_cpu();

	for (uint64_t i = 0; i < opt.events; i++)
		object_once(ours);
	return (double)(bench_cpu() - start) / opt.events;
}

/* The quotient of each two that follow each other, in turn who is first. */
static void in_turn(const char *name, double (*run)(bool ours))
{
	double plain[64], mixed[64], ratio[64];

	for (unsigned int i = 0; i < opt.rounds; i++) {
		bool first = i & 1;

		*(first ? &mixed[i] : &plain[i]) = run(first);
		*(first ? &plain[i] : &mixed[i]) = run(!first);
		ratio[i] = plain[i] / mixed[i];
	}
	qsort(plain, opt.rounds, sizeof(*plain), bench_compare);
	qsort(mixed, opt.rounds, sizeof(*mixed), bench_compare);
	qsort(ratio, opt.rounds, sizeof(*ratio), bench_compare);
	printf("%s_plain_ns=%.0f %s_mixed_ns=%.0f %s_ratio=%.3f %s_ratio_low=%.3f "
	       "%s_ratio_high=%.3f ",
	       name, plain[opt.rounds / 2], name, mixed[opt.rounds / 2], name,
	       ratio[opt.rounds / 2], name, ratio[opt.rounds / 4], name,
	       ratio[opt.rounds - 1 - opt.rounds / 4]);
}

static int bound(struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*at);

	*at = (struct sockaddr_in){.sin_family = AF_INET};
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0 &&
		      getsockname(fd, (struct sockaddr *)at, &len) == 0 && listen(fd, 16) == 0,
	      "listen");
	return fd;
}

/* A connection by loopback. */
static void connected(int listener, const struct sockaddr_in *at, int pair[2])
{
	int one = 1;

	pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(pair[0] >= 0 && connect(pair[0], (const struct sockaddr *)at, sizeof(*at)) == 0,
	      "connect");
	pair[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	check(pair[1] >= 0, "accept");
	setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void set_up(void)
{
	struct sockaddr_in at;
	int listener;

	bench_raise_nofile(2 * opt.descriptors + 64);
	it.pair = calloc(opt.descriptors + 1, sizeof(*it.pair));
	it.epfd = epoll_create1(EPOLL_CLOEXEC);
	it.eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	check(it.pair && it.epfd >= 0 && it.eventfd >= 0, "descriptors");
	if (pollux_ep_new(&it.ep, NULL) || pollux_efd_new(&it.efd, 0, 0))
		bench_die("out of memory");
	listener = bound(&at);
	for (unsigned int i = 0; i < opt.descriptors; i++)
		connected(listener, &at, it.pair[i]);
	close(listener);
}

/* What stands in both sets wakes both, and who is measured would pay for the other. */
static void set_sockets(bool ours, bool plain)
{
	for (unsigned int i = 0; i < opt.descriptors; i++) {
		int fd = it.pair[i][1];
		struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

		(void)epoll_ctl(it.epfd, plain ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &ev);
		(void)pollux_ep_ctl_fd(it.ep, ours ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &ev);
	}
}

static double sockets_alone(bool ours)
{
	set_sockets(ours, !ours);
	return sockets(ours);
}

int main(int argc, char **argv)
{
	static const struct bench_option options[] = {
		{"descriptors", "sockets in the set", .count = &opt.descriptors, .max = 100000},
		{"wave", "sockets that are written before a wait", .count = &opt.wave, .min = 1,
		 .max = WAVE},
		{"rounds", "rounds of each side", .count = &opt.rounds, .min = 1, .max = 64},
		{"events", "events in a round", .number = &opt.events, .min = 1, .max = 100000000},
		{.name = NULL},
	};
	struct epoll_event ev = {.events = EPOLLIN};

	bench_options(argc, argv, "The mixed wait of the native API beside the kernel's.", options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	set_up();
	printf("program=native_mixed descriptors=%u wave=%u rounds=%u events=%" PRIu64 " ",
	       opt.descriptors, opt.wave, opt.rounds, opt.events);
	if (opt.descriptors >= opt.wave)
		in_turn("sockets", sockets_alone);
	set_sockets(true, true);
	check(epoll_ctl(it.epfd, EPOLL_CTL_ADD, it.eventfd, &ev) == 0, "epoll_ctl");
	if (pollux_ep_ctl(it.ep, EPOLL_CTL_ADD, pollux_efd_file(it.efd), 0, &ev))
		bench_die("out of memory");
	in_turn("object", object);
	putchar('\n');
	return 0;
}
