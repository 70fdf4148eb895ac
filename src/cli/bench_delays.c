/* SPDX-License-Identifier: MIT */
/* Scenarios about single operations: how long one takes, and how long it may be held up. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char *events_words(const char *before, unsigned long usual)
{
	unsigned long n = bench_events() ? bench_events() : bench_quick() ? usual / 5 : usual;

	return cli_format("%s %lu", before, n);
}

void bench_add_removal(void)
{
	static const struct sides sides = {4,
					   {"spinlock", "rwlock", "lock-free", "Pollux"},
					   {"spinlock", "rwlock", "lockfree", "pollux"}};
	static const struct metric metrics[] = {{"ns", "removal", UNIT_NS}};
	static const unsigned long usual[] = {16, 256, 4096, 0}, quick[] = {16, 1024, 0};
	const unsigned long one[] = {bench_events(), 0};

	for (const unsigned long *n = *one ? one : bench_quick() ? quick : usual; *n; n++) {
		struct config *c = bench_row("removal", cli_format("%lu queued", *n), &sides, true,
					     metrics, COUNT(metrics));

		for (size_t s = 0; s < sides.n; s++) {
			char *words =
				cli_format("--algorithm %s --removals %lu", sides.keys[s], *n);

			bench_row_command(c, s, "inner_ready", words);
			free(words);
		}
	}
}

void bench_add_inversion(void)
{
	static const struct sides sides = {5,
					   {"spinlock", "PI lock", "rwlock", "lock-free", "Pollux"},
					   {"spinlock", "pi", "rwlock", "lockfree", "pollux"}};
	static const struct metric metrics[] = {
		{"p50_us", "p50", UNIT_US}, {"p99_us", "p99", UNIT_US}, {"max_us", "max", UNIT_US}};
	static const struct {
		const char *label;
		const char *words;
	} rows[] = {
		{"stopped in the middle", "--where middle --file other"},
		{"in the middle, same file", "--where middle --file same"},
		{"stopped anywhere", "--where anywhere --file other"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct config *c = bench_row("inversion", cli_strdup(rows[i].label), &sides, true,
					     metrics, COUNT(metrics));

		for (size_t s = 0; s < sides.n; s++) {
			char *before = cli_format("--algorithm %s %s --rounds", sides.keys[s],
						  rows[i].words);
			char *words = events_words(before, 100);

			bench_row_command(c, s, "inner_inversion", words);
			free(before);
			free(words);
		}
	}
}

void bench_add_latency(void)
{
	static const struct metric metrics[] = {
		{"p50_ns", "p50", UNIT_NS},
		{"p99_ns", "p99", UNIT_NS},
		{"p999_ns", "p99.9", UNIT_NS},
		{"max_ns", "max", UNIT_NS},
	};
	static const char *const labels[] = {"spinning", "sleeping"};
	static const char *const words[] = {"--events", "--sleep --gap 50000 --events"};

	for (size_t native = 0; native < 2; native++) {
		for (size_t m = 0; m < COUNT(labels); m++) {
			struct config *c = bench_row(
				"latency", cli_format("%s%s", labels[m], native ? ", native" : ""),
				&bench_kernel_and_pollux, native, metrics, COUNT(metrics));
			char *w = events_words(words[m], 20000);

			bench_row_command(c, SIDE_KERNEL, "latency", w);
			if (native)
				bench_row_command(c, SIDE_POLLUX, "native_latency", w);
			else
				bench_row_served(c, SIDE_POLLUX, "latency", w);
			free(w);
		}
	}
}

void bench_add_cost(void)
{
	static const struct sides sides = {1, {"Pollux"}, {"pollux"}};
	static const struct metric metrics[] = {
		{"ns", "time", UNIT_NS},
		{"locked", "atomic steps", UNIT_COUNT},
		{"instructions", "instructions", UNIT_COUNT},
	};
	static const char *const paths[][2] = {
		{"write-coalesced", "write, nobody to tell"},
		{"write-queued", "write, found queued"},
		{"write-push", "write that queues"},
		{"collect-lt", "collect, LT"},
		{"collect-lt-again", "collect again, LT"},
		{"collect-lt-gone", "collect, not ready any more"},
		{"collect-et", "collect, ET"},
		{"read", "read"},
		{"wait-nothing", "wait, nothing there"},
		{"make-add-close", "make, ADD, close"},
	};
	struct config *c;

	/* On one CPU, where instructions can be counted, and with the other side elsewhere. */
	for (size_t remote = 0; remote < 2; remote++) {
		for (size_t i = 0; i < COUNT(paths); i++) {
			char *before, *words;

			/* There is no other side to what one thread makes for itself. */
			if (remote && !strcmp(paths[i][0], "make-add-close"))
				continue;
			before = cli_format("--path %s%s --rounds", paths[i][0],
					    remote ? " --remote" : "");
			words = events_words(before, 2001);
			c = bench_row("cost",
				      cli_format("%s%s", paths[i][1], remote ? ", remote" : ""),
				      &sides, true, metrics, remote ? 1 : COUNT(metrics));
			bench_row_command(c, 0, "inner_cost", words);
			free(before);
			free(words);
		}
	}
	c = bench_row("cost", cli_strdup("write, a waiter sleeps"), &sides, true, metrics + 1,
		      COUNT(metrics) - 1);
	bench_row_command(c, 0, "inner_cost", "--path write-wake");
}

static void add_step(char *label, const struct metric *metrics, size_t n, char *words)
{
	static const struct sides sides = {1, {"this machine"}, {"machine"}};
	struct config *c = bench_row("primitives", label, &sides, true, metrics, n);

	bench_row_command(c, 0, "primitives", words);
	free(words);
}

void bench_add_primitives(void)
{
	static const struct metric on_a_line[] = {{"ns", "alone", UNIT_NS},
						  {"contended_ns", "contended", UNIT_NS}};
	static const struct metric between[] = {{"ns", "median of CPU pairs", UNIT_NS},
						{"least_ns", "nearest pair", UNIT_NS},
						{"most_ns", "farthest pair", UNIT_NS}};
	static const struct metric alone[] = {{"ns", "alone", UNIT_NS}};
	static const char *const line_steps[][2] = {
		{"add", "atomic add"}, {"cas", "compare and swap"}, {"swap", "exchange"},
		{"load", "load"},      {"store", "store"},	    {"fence", "store and barrier"},
	};
	static const char *const between_steps[][2] = {
		{"hand-over", "line handed to one who waits"},
		{"fetch", "a written line read, in turn"},
		{"fetch-many", "written lines read, many"},
		{"fetch-add", "written lines added to, many"},
	};
	static const char *const alone_steps[][2] = {
		{"clock", "clock_gettime"},
		{"syscall", "system call"},
		{"futex-wake", "futex wake, nobody there"},
	};
	const unsigned int *threads = bench_threads();
	unsigned int usual[16];
	struct machine m;

	machine_describe(&m);
	if (!threads) {
		size_t n = 0;

		for (int cpus = 2; cpus <= m.cpus && n < COUNT(usual) - 1; cpus *= 2)
			usual[n++] = (unsigned int)cpus;
		if (!n)
			usual[n++] = 1;
		usual[n] = 0;
		threads = usual;
	}
	for (; *threads; threads++)
		for (size_t i = 0; i < COUNT(line_steps); i++)
			add_step(cli_format("%s, %u CPU%s", line_steps[i][1], *threads,
					    *threads == 1 ? "" : "s"),
				 on_a_line, *threads == 1 ? 1 : COUNT(on_a_line),
				 cli_format("--what %s --threads %u", line_steps[i][0], *threads));
	for (size_t i = 0; i < COUNT(between_steps); i++)
		add_step(cli_strdup(between_steps[i][1]), between, m.cpus > 2 ? COUNT(between) : 1,
			 cli_format("--what %s", between_steps[i][0]));
	for (size_t i = 0; i < COUNT(alone_steps); i++)
		add_step(cli_strdup(alone_steps[i][1]), alone, COUNT(alone),
			 cli_format("--what %s", alone_steps[i][0]));
}

void bench_add_calls(void)
{
	static const struct metric metrics[] = {{"ns", "time", UNIT_NS}};
	static const char *const calls[][2] = {
		{"write-eventfd", "write, eventfd"},
		{"read-eventfd", "read, eventfd"},
		{"pipe", "write and read, pipe"},
		{"pipe-splice", "write, splice and read, pipes"},
		{"socket", "write and read, socket"},
		{"socket-vectors", "writev and readv, socket"},
		{"socket-message", "sendmsg and recvmsg, socket"},
		{"socket-rights", "sendmsg of a file, recvmsg and close"},
		{"read-file", "read, file"},
		{"write-file", "write, file"},
		{"pread-file", "pread, file"},
		{"lseek-file", "lseek, file"},
		{"mmap-file", "mmap and munmap, file"},
		{"wait-socket", "epoll_wait, socket"},
		{"wait-eventfd", "epoll_wait, eventfd"},
		{"wait-both", "epoll_wait, socket and eventfd"},
		{"wait-socket-ready", "epoll_wait, ready socket"},
		{"wait-eventfd-ready", "epoll_wait, ready eventfd"},
		{"wait-both-ready", "epoll_wait, ready socket and eventfd"},
		{"mod-socket", "MOD, socket"},
		{"mod-eventfd", "MOD, eventfd"},
		{"add-del-socket", "ADD and DEL, socket"},
		{"add-del-eventfd", "ADD and DEL, eventfd"},
		{"poll-socket", "poll, socket"},
		{"poll-eventfd", "poll, eventfd"},
		{"poll-both", "poll, socket and eventfd"},
		{"poll-sockets", "poll, 64 sockets"},
		{"select-socket", "select, socket"},
		{"select-eventfd", "select, eventfd"},
		{"select-sockets", "select, 64 sockets"},
		{"select-wide", "select, socket, nfds 1024"},
		{"make-epoll", "epoll_create1 and close"},
		{"make-epoll-add", "epoll_create1, ADD of eventfd, close"},
		{"make-eventfd", "eventfd and close"},
		{"make-timerfd", "timerfd_create and close"},
		{"make-pipe", "pipe2 and close of both"},
		{"make-sockets", "socketpair and close of both"},
		{"open-file", "open and close, /dev/null"},
		{"dup-file", "dup and close, file"},
		{"dup-eventfd", "dup and close, eventfd"},
		{"dup2-file", "dup2, file over file"},
		{"dup2-file-threads", "dup2, file over file, several threads"},
		{"close-range", "close_range above 4000"},
		{"settime", "timerfd_settime, not watched"},
		{"fcntl-socket", "fcntl F_GETFL, socket"},
		{"fcntl-eventfd", "fcntl F_GETFL, eventfd"},
		{"ioctl-socket", "ioctl FIONREAD, socket"},
		{"sigaction", "sigaction"},
		{"sigprocmask", "sigprocmask"},
		{"syscall", "syscall of getpid"},
		{"thread", "pthread_create and join, one CPU"},
		{"fork", "fork and waitpid, one CPU"},
	};

	for (size_t i = 0; i < COUNT(calls); i++) {
		struct config *c =
			bench_row("calls", cli_strdup(calls[i][1]), &bench_kernel_and_pollux, false,
				  metrics, COUNT(metrics));
		char *before = cli_format("--call %s --rounds", calls[i][0]);
		char *words = events_words(before, 601);

		bench_row_command(c, SIDE_KERNEL, "calls", words);
		bench_row_served(c, SIDE_POLLUX, "calls", words);
		free(before);
		free(words);
	}
}
