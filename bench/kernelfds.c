/* SPDX-License-Identifier: MIT */
/*
 * Kernel descriptors alone: TCP echo over loopback, each side an epoll loop over
 * sockets. Shows what the drop-in costs a program that it has nothing to offer.
 */
#include "bench.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define MESSAGE 64

static struct {
	unsigned int threads;
	unsigned int connections;
	uint64_t events;
} opt = {.threads = 1, .connections = 32, .events = 4000};

struct conn {
	int client;
	int server;
	uint64_t sent;
	size_t have;
	unsigned char in[MESSAGE];
};

struct group {
	struct conn *conns;
	uint64_t echoed;
	uint64_t answers;
};

static struct bench_gate gate;

static void fill(unsigned char *message, uint64_t sequence)
{
	for (size_t i = 0; i < MESSAGE; i += sizeof(sequence)) {
		uint64_t word = sequence * 0x9e3779b97f4a7c15u + i;

		memcpy(message + i, &word, sizeof(word));
	}
}

static void send_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			sched_yield();
			continue;
		}
		if (n <= 0)
			bench_die("send: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

static void send_next(struct conn *c)
{
	unsigned char message[MESSAGE];

	fill(message, c->sent++);
	send_all(c->client, message, sizeof(message));
}

static void *server(void *arg)
{
	struct group *g = arg;
	struct epoll_event evs[64];
	char buffer[4096];
	unsigned int open = opt.connections;
	int ep = bench_epoll();

	for (unsigned int i = 0; i < opt.connections; i++)
		bench_ctl(ep, EPOLL_CTL_ADD, g->conns[i].server, EPOLLIN, i);
	bench_gate_enter(&gate);
	while (open) {
		int n = bench_wait(ep, evs, 64, -1);

		for (int i = 0; i < n; i++) {
			int fd = g->conns[evs[i].data.u64].server;
			ssize_t got = recv(fd, buffer, sizeof(buffer), 0);

			if (got < 0 && (errno == EAGAIN || errno == EINTR))
				continue;
			if (got < 0)
				bench_die("recv: %s", strerror(errno));
			if (got == 0) {
				open--;
				close(fd);
				continue;
			}
			g->echoed += (uint64_t)got;
			send_all(fd, buffer, (size_t)got);
		}
	}
	close(ep);
	return NULL;
}

static void *client(void *arg)
{
	struct group *g = arg;
	struct epoll_event evs[64];
	unsigned int open = opt.connections;
	int ep = bench_epoll();

	for (unsigned int i = 0; i < opt.connections; i++)
		bench_ctl(ep, EPOLL_CTL_ADD, g->conns[i].client, EPOLLIN, i);
	bench_gate_enter(&gate);
	for (unsigned int i = 0; i < opt.connections; i++)
		send_next(&g->conns[i]);
	while (open) {
		int n = bench_wait(ep, evs, 64, -1);

		for (int i = 0; i < n; i++) {
			struct conn *c = &g->conns[evs[i].data.u64];
			unsigned char expected[MESSAGE];
			ssize_t got = recv(c->client, c->in + c->have, MESSAGE - c->have, 0);

			if (got < 0 && (errno == EAGAIN || errno == EINTR))
				continue;
			if (got <= 0)
				bench_die("recv: %s", got ? strerror(errno) : "connection closed");
			c->have += (size_t)got;
			if (c->have < MESSAGE)
				continue;
			c->have = 0;
			fill(expected, c->sent - 1);
			if (memcmp(expected, c->in, MESSAGE))
				bench_die("the echo differs from what was sent");
			g->answers++;
			if (c->sent < opt.events) {
				send_next(c);
			} else {
				open--;
				close(c->client);
			}
		}
	}
	close(ep);
	return NULL;
}

static void set_up_socket(int fd)
{
	int on = 1, flags = fcntl(fd, F_GETFL);

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) || flags < 0 ||
	    fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		bench_die("cannot set up a socket: %s", strerror(errno));
}

static void connect_group(struct group *g)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(listener, 16) || getsockname(listener, (struct sockaddr *)&addr, &len))
		bench_die("cannot listen on loopback: %s", strerror(errno));
	g->conns = calloc(opt.connections, sizeof(*g->conns));
	if (!g->conns)
		bench_die("out of memory");
	for (unsigned int i = 0; i < opt.connections; i++) {
		struct conn *c = &g->conns[i];

		c->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (c->client < 0 || connect(c->client, (struct sockaddr *)&addr, sizeof(addr)))
			bench_die("cannot connect over loopback: %s", strerror(errno));
		c->server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (c->server < 0)
			bench_die("accept4: %s", strerror(errno));
		set_up_socket(c->client);
		set_up_socket(c->server);
	}
	close(listener);
}

static const char about[] =
	"TCP echo over loopback; both sides are epoll loops over sockets alone.";

static const struct bench_option options[] = {
	{"threads", "pairs of a server and a client thread", .count = &opt.threads, .min = 1,
	 .max = 1024},
	{"connections", "connections of each pair", .count = &opt.connections, .min = 1,
	 .max = 10000},
	{"events", "requests on each connection", .number = &opt.events, .min = 1,
	 .max = UINT32_MAX},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct group *groups;
	pthread_t *threads;
	uint64_t start, end, cpu, requests;
	double seconds;
	int probe;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	bench_raise_nofile(2 * (uint64_t)opt.threads * (opt.connections + 1) + 64);
	groups = calloc(opt.threads, sizeof(*groups));
	threads = calloc(2 * (size_t)opt.threads, sizeof(*threads));
	if (!groups || !threads)
		bench_die("out of memory");
	bench_gate_init(&gate, 2 * opt.threads);
	for (unsigned int i = 0; i < opt.threads; i++) {
		connect_group(&groups[i]);
		threads[2 * i] = bench_thread(server, &groups[i]);
		threads[2 * i + 1] = bench_thread(client, &groups[i]);
	}
	cpu = bench_cpu();
	start = bench_gate_open(&gate);
	for (unsigned int i = 0; i < 2 * opt.threads; i++)
		pthread_join(threads[i], NULL);
	end = bench_now();
	cpu = bench_cpu() - cpu;

	for (unsigned int i = 0; i < opt.threads; i++) {
		uint64_t expected = opt.connections * opt.events;

		if (groups[i].answers != expected || groups[i].echoed != expected * MESSAGE)
			bench_die("%" PRIu64 " answers of %" PRIu64, groups[i].answers, expected);
	}
	seconds = bench_seconds(start, end);
	requests = opt.threads * opt.connections * opt.events;
	probe = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	printf("program=kernelfds ");
	bench_print_served(probe);
	printf("threads=%u connections=%u events=%" PRIu64 " seconds=%.6f rate=%.1f "
	       "ns_per_request=%.1f cpu_ns_per_request=%.1f ok=1\n",
	       opt.threads, opt.connections, requests, seconds, (double)requests / seconds,
	       seconds * 1e9 / (double)requests, (double)cpu / (double)requests);
	for (unsigned int i = 0; i < opt.threads; i++)
		free(groups[i].conns);
	free(groups);
	free(threads);
	return 0;
}
