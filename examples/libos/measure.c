/* SPDX-License-Identifier: MIT */
/*
 * How long calls take: of the kernel, of the library OS, and of the library OS with a naive epoll.
 *
 * All three run in turn, several times, and what is printed is the median of each, and of the
 * ratios of neighbours with the lowest and the highest of them.
 */
#define _GNU_SOURCE
#include "compare.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "libos.h"

#define TURNS 7
/* So many files of the kernel's at most are in one table. */
#define MOST 1000000
#define FIRST 3
#define PRODUCERS 8
#define READY 64

enum who { KERNEL, LIBOS, NAIVE, WHO };

/* What every number is made with. */
struct calls {
	int (*epoll_create)(void);
	int (*eventfd)(int flags);
	int (*close)(int fd);
	int (*ctl)(int epfd, int op, int fd, struct epoll_event *ev);
	int (*wait)(int epfd, struct epoll_event *ev, int max, int timeout_ms);
	long (*read)(int fd, void *buf, size_t n);
	long (*write)(int fd, const void *buf, size_t n);
};

static struct process *lib;

static int lib_epoll_create(void)
{
	return sys_epoll_create(lib);
}

static int lib_naive_create(void)
{
	return sys_naive_create(lib);
}

static int lib_eventfd(int flags)
{
	return sys_eventfd(lib, 0, flags);
}

static int lib_close(int fd)
{
	return sys_close(lib, fd);
}

static int lib_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return sys_epoll_ctl(lib, epfd, op, fd, ev);
}

static int lib_wait(int epfd, struct epoll_event *ev, int max, int timeout_ms)
{
	return sys_epoll_wait(lib, epfd, ev, max, timeout_ms);
}

static long lib_read(int fd, void *buf, size_t n)
{
	return sys_read(lib, fd, buf, n);
}

static long lib_write(int fd, const void *buf, size_t n)
{
	return sys_write(lib, fd, buf, n);
}

static int kernel_epoll_create(void)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

static int kernel_eventfd(int flags)
{
	return eventfd(0, flags | EFD_CLOEXEC);
}

static const struct calls calls[WHO] = {
	[KERNEL] = {kernel_epoll_create, kernel_eventfd, close, epoll_ctl, epoll_wait, read, write},
	[LIBOS] = {lib_epoll_create, lib_eventfd, lib_close, lib_ctl, lib_wait, lib_read,
		   lib_write},
	[NAIVE] = {lib_naive_create, lib_eventfd, lib_close, lib_ctl, lib_wait, lib_read,
		   lib_write},
};

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

static int64_t cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

static void need(bool true_now, const char *what)
{
	if (true_now)
		return;
	fprintf(stderr, "libos: %s\n", what);
	exit(1);
}

/* --- What is measured. ----------------------------------------------------------------------- */

/* A thread with a table of descriptors of its own, which holds files of the kernel. */
struct holder {
	pthread_t thread;
	struct ground *g;
	int files;
};

/* An epoll, one file that is used, and others. */
struct ground {
	const struct calls *c;
	int ep, fd, others;
	int *other;
	/* Those of them that are too many for one table. */
	struct holder *holder;
	int holders, holding;
	bool ends;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

/* Files that one process may have, on the side of the kernel. */
static int allowed;

static void watch(struct ground *g, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data = {.fd = fd}};

	need(!g->c->ctl(g->ep, EPOLL_CTL_ADD, fd, &ev), "ADD fails");
}

static int file_new(const struct ground *g, int flags)
{
	int fd = g->c->eventfd(flags);

	need(fd >= 0, "no eventfd");
	return fd;
}

static void *hold(void *arg)
{
	struct holder *h = arg;
	struct ground *g = h->g;

	need(!unshare(CLONE_FILES), "unshare");
	for (int i = 0; i < h->files; i++)
		watch(g, file_new(g, EFD_NONBLOCK), EPOLLIN);
	pthread_mutex_lock(&g->lock);
	g->holding++;
	pthread_cond_broadcast(&g->changed);
	while (!g->ends)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
	for (int fd = FIRST; fd < FIRST + 100 + h->files; fd++)
		close(fd);
	return NULL;
}

/* The limit is for each table, and an epoll may watch files of several. */
static void hold_others(struct ground *g)
{
	int left = g->others;

	g->holders = left / allowed + 1;
	g->holder = calloc((size_t)g->holders, sizeof(*g->holder));
	need(g->holder != NULL, "no memory");
	for (int i = 0; i < g->holders; i++) {
		g->holder[i] = (struct holder){.g = g, .files = left < allowed ? left : allowed};
		left -= g->holder[i].files;
		need(!pthread_create(&g->holder[i].thread, NULL, hold, &g->holder[i]), "no thread");
	}
	pthread_mutex_lock(&g->lock);
	while (g->holding < g->holders)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

static void ground_new(struct ground *g, const struct calls *c, int others)
{
	*g = (struct ground){.c = c, .others = others};
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
	g->other = calloc((size_t)others + 1, sizeof(int));
	g->ep = c->epoll_create();
	need(g->other && g->ep >= 0, "no epoll");
	if (c == &calls[KERNEL] && others > allowed)
		hold_others(g);
	for (int i = 0; !g->holders && i < others; i++) {
		g->other[i] = file_new(g, EFD_NONBLOCK);
		watch(g, g->other[i], EPOLLIN);
	}
	g->fd = file_new(g, EFD_NONBLOCK);
	watch(g, g->fd, EPOLLIN);
}

static void ground_free(struct ground *g)
{
	pthread_mutex_lock(&g->lock);
	g->ends = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
	for (int i = 0; i < g->holders; i++)
		pthread_join(g->holder[i].thread, NULL);
	g->c->close(g->ep);
	g->c->close(g->fd);
	for (int i = 0; !g->holders && i < g->others; i++)
		g->c->close(g->other[i]);
	free(g->other);
	free(g->holder);
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
}

/* Each of these does its work n times. */
typedef void (*work)(struct ground *g, uint64_t n);

static void write_wait_read(struct ground *g, uint64_t n)
{
	const struct calls *c = g->c;
	struct epoll_event ev[8];
	uint64_t v = 1;

	while (n--) {
		need(c->write(g->fd, &v, sizeof(v)) == sizeof(v), "write");
		need(c->wait(g->ep, ev, 8, 0) == 1 && ev[0].data.fd == g->fd, "wait");
		need(c->read(g->fd, &v, sizeof(v)) == sizeof(v) && v == 1, "read");
	}
}

static void add_del(struct ground *g, uint64_t n)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int fd = file_new(g, EFD_NONBLOCK);

	while (n--) {
		need(!g->c->ctl(g->ep, EPOLL_CTL_ADD, fd, &ev), "ADD");
		need(!g->c->ctl(g->ep, EPOLL_CTL_DEL, fd, NULL), "DEL");
	}
	g->c->close(fd);
}

/* All others are ready all the time. */
static void wait_ready(struct ground *g, uint64_t n)
{
	struct epoll_event ev[READY];
	uint64_t v = 1;

	for (int i = 0; i < READY; i++)
		need(g->c->write(g->other[i], &v, sizeof(v)) == sizeof(v), "write");
	while (n--)
		need(g->c->wait(g->ep, ev, READY, 0) == READY, "wait");
	for (int i = 0; i < READY; i++)
		need(g->c->read(g->other[i], &v, sizeof(v)) == sizeof(v), "read");
}

struct producer {
	struct ground *g;
	pthread_t thread;
	int fd;
	uint64_t n;
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	uint64_t v = 1;

	for (uint64_t i = 0; i < p->n; i++)
		need(p->g->c->write(p->fd, &v, sizeof(v)) == sizeof(v), "write");
	return NULL;
}

/* Threads write to files of their own; this one waits and reads until all has come. */
static void producers(struct ground *g, uint64_t n)
{
	struct producer p[PRODUCERS];
	struct epoll_event ev[PRODUCERS];
	uint64_t got = 0, all = 0, v;

	for (int i = 0; i < PRODUCERS; i++) {
		p[i] = (struct producer){.g = g, .fd = g->other[i], .n = n / PRODUCERS + 1};
		all += p[i].n;
		need(!pthread_create(&p[i].thread, NULL, produce, &p[i]), "no thread");
	}
	while (got < all) {
		int r = g->c->wait(g->ep, ev, PRODUCERS, 10000);

		need(r > 0, "what was written does not come");
		for (int i = 0; i < r; i++)
			if (g->c->read(ev[i].data.fd, &v, sizeof(v)) == sizeof(v))
				got += v;
	}
	need(got == all, "more was read than was written");
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(p[i].thread, NULL);
}

struct answerer {
	const struct calls *c;
	int ep, in, out;
	uint64_t n;
};

static void answer(const struct answerer *a, bool first)
{
	struct epoll_event ev;
	uint64_t v = 1;

	for (uint64_t i = 0; i < a->n; i++) {
		if (first)
			need(a->c->write(a->out, &v, sizeof(v)) == sizeof(v), "write");
		need(a->c->wait(a->ep, &ev, 1, 10000) == 1, "no answer comes");
		need(a->c->read(a->in, &v, sizeof(v)) == sizeof(v) && v == 1, "read");
		if (!first)
			need(a->c->write(a->out, &v, sizeof(v)) == sizeof(v), "write");
	}
}

static void *answer_second(void *arg)
{
	answer(arg, false);
	return NULL;
}

/* Two threads wait for one another, each in an epoll of its own. */
static void ping_pong(struct ground *g, uint64_t n)
{
	struct ground back;
	struct answerer a, b;
	pthread_t t;

	ground_new(&back, g->c, 0);
	a = (struct answerer){.c = g->c, .ep = g->ep, .in = g->fd, .out = back.fd, .n = n};
	b = (struct answerer){.c = g->c, .ep = back.ep, .in = back.fd, .out = g->fd, .n = n};
	need(!pthread_create(&t, NULL, answer_second, &b), "no thread");
	answer(&a, true);
	pthread_join(t, NULL);
	ground_free(&back);
}

/* --- How it is measured. --------------------------------------------------------------------- */

struct row {
	const char *name;
	work work;
	int others;
	/* What one pass counts for. */
	int each;
};

struct number {
	double wall, cpu;
};

/* One turn: as many as fill the time, found out with fewer. */
static struct number turn(struct ground *g, const struct row *r, double seconds)
{
	uint64_t n = 16;
	int64_t t, c, aim = (int64_t)(seconds * 1e9);

	for (;;) {
		c = cpu();
		t = now();
		r->work(g, n);
		t = now() - t;
		c = cpu() - c;
		if (t >= aim / 2 || n > 1ull << 40)
			break;
		n = t < aim / 64 ? n * 16 : (uint64_t)((double)n * 1.1 * (double)aim / (double)t);
	}
	return (struct number){
		.wall = (double)t / (double)n / r->each,
		.cpu = (double)c / (double)n / r->each,
	};
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *of, double *low, double *high)
{
	double v[TURNS];

	memcpy(v, of, sizeof(v));
	qsort(v, TURNS, sizeof(v[0]), by_size);
	*low = v[0];
	*high = v[TURNS - 1];
	return v[TURNS / 2];
}

/* Of turns that ran one after the other. */
static void ratio_print(const double *of, const double *to)
{
	double ratio[TURNS], m, low, high;
	char spread[64];

	for (int i = 0; i < TURNS; i++)
		ratio[i] = of[i] / to[i];
	m = median(ratio, &low, &high);
	snprintf(spread, sizeof(spread), "[%.1f-%.1f]", low, high);
	printf(" %7.1f %-15s", m, spread);
}

/* Returns the library OS's time. */
static double measure_row(const struct row *r, double seconds)
{
	double wall[WHO][TURNS], time[WHO][TURNS], m[WHO], low, high;
	struct ground g[WHO];

	lib = process_new(FIRST, 2 * r->others + 1000);
	need(lib != NULL, "no process");
	/* What threads do alone is measured with a table that is theirs alone, as in the kernel. */
	if (r->work == producers || r->work == ping_pong)
		process_share(lib);
	for (int w = 0; w < WHO; w++)
		ground_new(&g[w], &calls[w], r->others);
	for (int i = 0; i < TURNS; i++) {
		for (int w = 0; w < WHO; w++) {
			struct number n = turn(&g[w], r, seconds);

			wall[w][i] = n.wall;
			time[w][i] = n.cpu;
		}
	}
	for (int w = 0; w < WHO; w++)
		ground_free(&g[w]);
	process_exit(lib);
	printf("%-32s", r->name);
	for (int w = 0; w < WHO; w++) {
		m[w] = median(wall[w], &low, &high);
		printf(" %9.1f (%9.1f)", m[w], median(time[w], &low, &high));
	}
	ratio_print(wall[KERNEL], wall[LIBOS]);
	ratio_print(time[KERNEL], time[LIBOS]);
	ratio_print(wall[NAIVE], wall[LIBOS]);
	printf("\n");
	fflush(stdout);
	return m[LIBOS];
}

int measure(double seconds, int idle)
{
	char name[2][40];
	struct row row[] = {
		{"write + wait + read, 0 idle", write_wait_read, 0, 1},
		{"write + wait + read, 900 idle", write_wait_read, 900, 1},
		{name[0], write_wait_read, idle, 1},
		{"ADD + DEL, 0 others", add_del, 0, 1},
		{"ADD + DEL, 900 others", add_del, 900, 1},
		{name[1], add_del, idle, 1},
		{"wait, 64 ready, each", wait_ready, READY, READY},
		{"8 producers, a write", producers, PRODUCERS, 1},
		{"ping-pong, a round trip", ping_pong, 0, 1},
	};
	const int rows = sizeof(row) / sizeof(row[0]);
	double time[sizeof(row) / sizeof(row[0])];
	struct rlimit l;

	need(!getrlimit(RLIMIT_NOFILE, &l), "getrlimit");
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	allowed = l.rlim_cur > MOST ? MOST : (int)l.rlim_cur - 100;
	snprintf(name[0], sizeof(name[0]), "write + wait + read, %d idle", idle);
	snprintf(name[1], sizeof(name[1]), "ADD + DEL, %d others", idle);
	printf("nanoseconds (of them on a CPU), medians of %d turns; how many times as long as the "
	       "library OS: median [lowest-highest]\n%-32s %21s %21s %21s  %-22s  %-22s  %s\n",
	       TURNS, "", "kernel", "library OS", "naive", "kernel", "kernel, on a CPU", "naive");
	for (int i = 0; i < rows; i++)
		time[i] = measure_row(&row[i], seconds);
	printf("write + wait + read with %d idle files takes %.2f times as long as with none\n",
	       idle, time[2] / time[0]);
	return 0;
}
