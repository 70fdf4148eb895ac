/* SPDX-License-Identifier: MIT */
/*
 * Messages from threads to a loop of libuv, as node's workers send them: each thread
 * counts up what it has to say and calls uv_async_send, as fast as it can or once the last
 * message has been heard; the loop takes what has come. libuv is the one that is installed, if any.
 */
#include "bench.h"

#define MAX_THREADS 64
#define UV_ASYNC 1
#define UV_RUN_DEFAULT 0

static struct {
	unsigned int threads;
	uint64_t events;
	bool heard;
} opt = {.threads = 4, .events = 2000000};

/* libuv's objects are known by address and size only; the first word of a handle is ours. */
static struct {
	size_t (*loop_size)(void);
	size_t (*handle_size)(int type);
	int (*loop_init)(void *loop);
	int (*loop_close)(void *loop);
	int (*backend_fd)(const void *loop);
	int (*run)(void *loop, int mode);
	int (*async_init)(void *loop, void *async, void (*cb)(void *async));
	int (*async_send)(void *async);
	void (*close)(void *handle, void (*cb)(void *handle));
} uv;

static const struct {
	const char *name;
	void *at;
} functions[] = {
	{"uv_loop_size", &uv.loop_size},   {"uv_handle_size", &uv.handle_size},
	{"uv_loop_init", &uv.loop_init},   {"uv_loop_close", &uv.loop_close},
	{"uv_backend_fd", &uv.backend_fd}, {"uv_run", &uv.run},
	{"uv_async_init", &uv.async_init}, {"uv_async_send", &uv.async_send},
	{"uv_close", &uv.close},
};

struct worker {
	void *async;
	/* Sent by the thread; taken by the loop. */
	_Atomic uint64_t sent __attribute__((aligned(64)));
	_Atomic uint64_t taken __attribute__((aligned(64)));
	uint64_t calls;
};

static struct worker workers[MAX_THREADS];
static struct bench_gate gate;

static void find_libuv(void)
{
	void *lib = dlopen("libuv.so.1", RTLD_NOW);

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *f = lib ? dlsym(lib, functions[i].name) : NULL;

		if (!f)
			bench_skip("libuv is not installed");
		memcpy(functions[i].at, &f, sizeof(f));
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	bench_gate_enter(&gate);
	for (uint64_t i = 1; i <= opt.events; i++) {
		atomic_store_explicit(&w->sent, i, memory_order_release);
		if (uv.async_send(w->async))
			bench_die("uv_async_send failed");
		while (opt.heard && atomic_load_explicit(&w->taken, memory_order_acquire) != i)
			sched_yield();
	}
	return NULL;
}

static void heard(void *async)
{
	struct worker *w = *(struct worker **)async;
	uint64_t sent = atomic_load_explicit(&w->sent, memory_order_acquire);

	w->calls++;
	if (sent < atomic_load_explicit(&w->taken, memory_order_relaxed))
		bench_die("a message came twice");
	atomic_store_explicit(&w->taken, sent, memory_order_release);
	if (sent == opt.events)
		uv.close(async, NULL);
}

static const char about[] = "Threads send messages to a loop of libuv at full rate.";

static const struct bench_option options[] = {
	{"threads", "threads that send", .count = &opt.threads, .min = 1, .max = MAX_THREADS},
	{"events", "messages of each thread", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{"heard", "a thread waits for each to be heard before the next", .flag = &opt.heard},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	uint64_t start, end, cpu, messages, calls = 0;
	pthread_t threads[MAX_THREADS];
	double seconds;
	void *loop;

	bench_options(argc, argv, about, options);
	find_libuv();
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	loop = calloc(1, uv.loop_size());
	if (!loop || uv.loop_init(loop))
		bench_die("uv_loop_init failed");
	bench_gate_init(&gate, opt.threads);
	for (unsigned int i = 0; i < opt.threads; i++) {
		workers[i].async = calloc(1, uv.handle_size(UV_ASYNC));
		if (!workers[i].async || uv.async_init(loop, workers[i].async, heard))
			bench_die("uv_async_init failed");
		*(struct worker **)workers[i].async = &workers[i];
		threads[i] = bench_thread(work, &workers[i]);
	}
	cpu = bench_cpu();
	start = bench_gate_open(&gate);
	if (uv.run(loop, UV_RUN_DEFAULT))
		bench_die("the loop ended too early");
	end = bench_now();
	cpu = bench_cpu() - cpu;
	for (unsigned int i = 0; i < opt.threads; i++) {
		pthread_join(threads[i], NULL);
		if (workers[i].taken != opt.events)
			bench_die("messages were lost");
		calls += workers[i].calls;
		free(workers[i].async);
	}

	seconds = bench_seconds(start, end);
	messages = opt.threads * opt.events;
	printf("program=uv_async ");
	bench_print_served(uv.backend_fd(loop));
	printf("threads=%u events=%" PRIu64 " calls=%" PRIu64 " seconds=%.6f rate=%.1f "
	       "cpu_ns_per_message=%.1f ok=1\n",
	       opt.threads, messages, calls, seconds, (double)messages / seconds,
	       (double)cpu / (double)messages);
	if (uv.loop_close(loop))
		bench_die("uv_loop_close failed");
	free(loop);
	return 0;
}
