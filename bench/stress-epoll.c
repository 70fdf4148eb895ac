/* SPDX-License-Identifier: MIT */
/*
 * Many producers, one epoll. Each producer thread writes 1 to its own eventfd
 * (or, with --nocoalesce, to its own 64 eventfds, never to one that still holds
 * an unread write), and one or several threads wait on the epoll and read.
 */
#include "bench.h"

#define SLOTS_PER_PRODUCER 64
#define SPINS_BEFORE_YIELD 64
#define STOP_INDEX UINT64_MAX

struct slot {
	int fd;
	/* What consumers have read from fd; with --nocoalesce also the acknowledgement. */
	_Atomic uint64_t received;
} __attribute__((aligned(64)));

static struct {
	unsigned int producers;
	unsigned int waiters;
	unsigned int slots_per_producer;
	uint64_t events;
	unsigned int max_events;
	bool edge;
	bool nocoalesce;
} opt = {.producers = 8, .waiters = 1, .events = 1000000, .max_events = 64};

static struct slot *slots;
static size_t n_slots;
static int epoll_fd;
static int stop_fd;
static uint64_t target;
static struct bench_gate gate;
static _Atomic uint64_t total __attribute__((aligned(64)));
static _Atomic uint64_t finished_at;
static _Atomic uint64_t n_waits;
static _Atomic uint64_t n_reads;
static _Atomic uint64_t n_empty;

static void write_one(int fd)
{
	static const uint64_t one = 1;
	ssize_t n;

	do
		n = write(fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(one))
		bench_die("write: %s", n < 0 ? strerror(errno) : "short");
}

/* How many were written, or 0. */
static uint64_t read_all(const struct slot *slot)
{
	uint64_t value;
	ssize_t n;

	do
		n = read(slot->fd, &value, sizeof(value));
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n != sizeof(value))
		bench_die("read: %s", n < 0 ? strerror(errno) : "short");
	if (value == 0)
		bench_die("an eventfd read returned the count 0");
	return value;
}

static void *producer_flood(void *arg)
{
	const struct slot *mine = arg;

	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.events; i++)
		write_one(mine->fd);
	return NULL;
}

static void *producer_nocoalesce(void *arg)
{
	struct slot *mine = arg;
	uint64_t written[SLOTS_PER_PRODUCER] = {0};
	uint64_t sent = 0;
	unsigned int idle = 0;

	bench_gate_enter(&gate);
	while (sent < opt.events) {
		bool progress = false;

		for (unsigned int k = 0; k < SLOTS_PER_PRODUCER && sent < opt.events; k++) {
			if (atomic_load_explicit(&mine[k].received, memory_order_acquire) !=
			    written[k])
				continue;
			written[k]++;
			sent++;
			progress = true;
			write_one(mine[k].fd);
		}
		if (progress) {
			idle = 0;
		} else if (++idle < SPINS_BEFORE_YIELD) {
			bench_relax();
		} else {
			/* The consumer may need this CPU. */
			sched_yield();
		}
	}
	return NULL;
}

/* Reads one and books what it held; several consumers may meet on the same one. */
static uint64_t consume(struct slot *slot, bool alone)
{
	uint64_t value = read_all(slot);

	if (!value)
		return 0;
	if (opt.nocoalesce && value != 1)
		bench_die("what was written once held %" PRIu64, value);
	if (alone) {
		uint64_t sum = atomic_load_explicit(&slot->received, memory_order_relaxed);

		atomic_store_explicit(&slot->received, sum + value, memory_order_release);
	} else {
		atomic_fetch_add_explicit(&slot->received, value, memory_order_release);
	}
	return value;
}

static void *consumer(void *arg)
{
	struct epoll_event *evs = calloc(opt.max_events, sizeof(*evs));
	uint64_t waits = 0, reads = 0, empty = 0;
	bool alone = opt.waiters == 1;
	bool stop = false;

	(void)arg;
	if (!evs)
		bench_die("out of memory");
	if (!alone)
		bench_gate_enter(&gate);
	while (!stop) {
		int n = bench_wait(epoll_fd, evs, (int)opt.max_events, -1);
		uint64_t sum = 0, before;

		waits++;
		for (int i = 0; i < n; i++) {
			uint64_t value;

			if (evs[i].data.u64 == STOP_INDEX) {
				stop = true;
				continue;
			}
			if (evs[i].data.u64 >= n_slots || evs[i].events != EPOLLIN)
				bench_die("epoll_wait returned an event that nobody registered");
			value = consume(&slots[evs[i].data.u64], alone);
			reads++;
			empty += value == 0;
			sum += value;
		}
		if (!sum)
			continue;
		before = atomic_fetch_add_explicit(&total, sum, memory_order_relaxed);
		if (before + sum > target)
			bench_die("received %" PRIu64 " of %" PRIu64 " events: too many",
				  before + sum, target);
		if (before + sum == target) {
			atomic_store(&finished_at, bench_now());
			write_one(stop_fd);
		}
	}
	atomic_fetch_add(&n_waits, waits);
	atomic_fetch_add(&n_reads, reads);
	atomic_fetch_add(&n_empty, empty);
	free(evs);
	return NULL;
}

static void verify(void)
{
	uint64_t per_producer;

	if (atomic_load(&total) != target)
		bench_die("received %" PRIu64 " of %" PRIu64 " events", atomic_load(&total),
			  target);
	for (unsigned int p = 0; p < opt.producers; p++) {
		per_producer = 0;
		for (unsigned int k = 0; k < opt.slots_per_producer; k++) {
			struct slot *slot = &slots[p * opt.slots_per_producer + k];

			per_producer += atomic_load(&slot->received);
			if (read_all(slot))
				bench_die("something was left after the end");
		}
		if (per_producer != opt.events)
			bench_die("producer %u sent %" PRIu64 " events, %" PRIu64 " arrived", p,
				  opt.events, per_producer);
	}
}

static const char about[] =
	"N threads write to eventfds of their own; one thread waits on an epoll and reads.";

static const struct bench_option options[] = {
	{"threads", "writing threads", .count = &opt.producers, .min = 1, .max = 4096},
	{"events", "writes of each thread", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{"waiters", "threads that wait on the one epoll", .count = &opt.waiters, .min = 1,
	 .max = 1024},
	{"nocoalesce",
	 "each thread owns 64 eventfds and never writes to one again\n"
	 "before its previous write was read",
	 .flag = &opt.nocoalesce},
	{"et", "edge-triggered instead of level-triggered", .flag = &opt.edge},
	{"maxevents", "events per epoll_wait", .count = &opt.max_events, .min = 1, .max = 65536},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	pthread_t *threads;
	uint64_t start;
	double seconds;
	unsigned int consumers, n = 0;
	size_t n_fds;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	opt.slots_per_producer = opt.nocoalesce ? SLOTS_PER_PRODUCER : 1;
	n_slots = (size_t)opt.producers * opt.slots_per_producer;
	target = opt.producers * opt.events;
	n_fds = n_slots + 32;
	if (bench_raise_nofile(n_fds) < n_fds)
		bench_die("%zu descriptors are more than this user may open (ulimit -n)", n_fds);

	slots = aligned_alloc(64, n_slots * sizeof(*slots));
	threads = calloc(opt.producers + opt.waiters, sizeof(*threads));
	if (!slots || !threads)
		bench_die("out of memory");
	epoll_fd = bench_epoll();
	stop_fd = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	bench_ctl(epoll_fd, EPOLL_CTL_ADD, stop_fd, EPOLLIN, STOP_INDEX);
	for (size_t i = 0; i < n_slots; i++) {
		atomic_init(&slots[i].received, 0);
		slots[i].fd = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		bench_ctl(epoll_fd, EPOLL_CTL_ADD, slots[i].fd,
			  EPOLLIN | (opt.edge ? (uint32_t)EPOLLET : 0), i);
	}

	/* A single consumer is the main thread, as in the simplest real program. */
	consumers = opt.waiters == 1 ? 0 : opt.waiters;
	bench_gate_init(&gate, opt.producers + consumers);
	for (unsigned int i = 0; i < consumers; i++)
		threads[n++] = bench_thread(consumer, NULL);
	for (unsigned int i = 0; i < opt.producers; i++)
		threads[n++] = bench_thread(opt.nocoalesce ? producer_nocoalesce : producer_flood,
					    &slots[(size_t)i * opt.slots_per_producer]);
	start = bench_gate_open(&gate);
	if (!consumers)
		consumer(NULL);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	verify();

	seconds = bench_seconds(start, atomic_load(&finished_at));
	printf("program=stress-epoll ");
	bench_print_served(slots[0].fd);
	printf("threads=%u waiters=%u mode=%s trigger=%s events=%" PRIu64 " seconds=%.6f "
	       "rate=%.1f ns_per_event=%.1f waits=%" PRIu64 " reads=%" PRIu64
	       " empty_reads=%" PRIu64 " ok=1\n",
	       opt.producers, opt.waiters, opt.nocoalesce ? "nocoalesce" : "flood",
	       opt.edge ? "et" : "lt", target, seconds, (double)target / seconds,
	       seconds * 1e9 / (double)target, atomic_load(&n_waits), atomic_load(&n_reads),
	       atomic_load(&n_empty));
	free(threads);
	free(slots);
	return 0;
}
