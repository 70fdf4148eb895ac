/* SPDX-License-Identifier: MIT */
/*
 * All memory of the engine comes from the functions that the program has given. Each case is a
 * process of its own: they are given before anything is made.
 */
#include "native.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <pollux/memory.h>
#include <pollux/timer.h>

#define STORE (64ul << 20)
#define OBJECTS 5000
#define THREADS 40
#define MAPS 1000

struct store {
	char *at, *end;
	int maps, unmaps, refuses;
	struct {
		void *p;
		size_t bytes;
	} given[MAPS];
};

/* Called with a lock held, or at the first wake of a thread: two at once at most. */
static void *store_map(void *arg, size_t bytes, size_t align)
{
	struct store *s = arg;
	char *at, *p;
	int i;

	must(bytes && bytes % 4096 == 0 && align >= 4096 && (align & (align - 1)) == 0);
	must(align <= 2ul << 20);
	if (__atomic_load_n(&s->refuses, __ATOMIC_RELAXED))
		return NULL;
	at = __atomic_load_n(&s->at, __ATOMIC_RELAXED);
	do {
		p = (char *)(((uintptr_t)at + align - 1) & ~(align - 1));
		if (p + bytes > s->end)
			return NULL;
	} while (!__atomic_compare_exchange_n(&s->at, &at, p + bytes, false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	i = __atomic_fetch_add(&s->maps, 1, __ATOMIC_RELAXED);
	must(i < MAPS);
	s->given[i].p = p;
	s->given[i].bytes = bytes;
	return p;
}

static void store_unmap(void *arg, void *p, size_t bytes)
{
	struct store *s = arg;

	int i = 0;

	while (i < s->maps && s->given[i].p != p)
		i++;
	must(i < s->maps && s->given[i].bytes == bytes);
	s->given[i].p = NULL;
	s->unmaps++;
}

static struct store store;

static struct pollux_memory memory = {
	.size = sizeof(memory),
	.map = store_map,
	.unmap = store_unmap,
	.arg = &store,
};

static void store_begin(void)
{
	store.at = mmap(NULL, STORE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(store.at != MAP_FAILED);
	store.end = store.at + STORE;
	must(pollux_memory_ops(&memory) == 0);
}

/* From now on mmap and mremap fail in this process. */
static void refuse_mmap(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog) == 0);
	must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
}

static struct obj shared;
static int go, woken;

static void *wakes(void *arg)
{
	while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
		usleep(1000);
	pollux_file_wake(&shared.file, EPOLLIN);
	__atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&go, __ATOMIC_SEQ_CST) != 2)
		usleep(1000);
	return arg;
}

static void nothing_comes_from_elsewhere(void)
{
	static struct obj o[OBJECTS];
	static struct pollux_timer *timers[OBJECTS];
	static struct pollux_ep *eps[40];
	pthread_t t[THREADS];
	struct epoll_event ev[8] = {{.events = EPOLLIN}};
	struct pollux_ep *ep;
	int r;

	store_begin();
	for (int i = 0; i < THREADS; i++)
		must(pthread_create(&t[i], NULL, wakes, NULL) == 0);
	refuse_mmap();
	must(pollux_ep_new(&ep, NULL) == 0);
	/* Many registrations of one file, so that it gets an index. */
	for (int i = 0; i < OBJECTS; i++) {
		pollux_file_init(&o[i].file, &obj_ops);
		must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &o[i].file, 0, ev) == 0);
		must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &o[0].file, i + 1, ev) == 0);
		/* The list of times becomes larger than a block, and moves. */
		must(pollux_timer_new(&timers[i], NULL) == 0);
		must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_timer_file(timers[i]), 0, ev) == 0);
	}
	for (int i = 0; i < 40; i++)
		must(pollux_ep_new(&eps[i], NULL) == 0);
	/* Each is known to the engine from then on. */
	pollux_file_init(&shared.file, &obj_ops);
	shared.mask = EPOLLIN;
	must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &shared.file, 0, ev) == 0);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&woken, __ATOMIC_SEQ_CST) < THREADS)
		usleep(1000);
	r = pollux_ep_wait(ep, ev, 8, 0);
	must(r == 1);
	must(store.maps > 3 && store.unmaps > 0);
	__atomic_store_n(&go, 2, __ATOMIC_SEQ_CST);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void nothing_is_given(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_ep *ep = NULL, *more;
	struct pollux_efd *e;
	int r, n = 1;

	store_begin();
	store.refuses = 1;
	must(pollux_ep_new(&ep, NULL) == -ENOMEM);
	must(!ep);
	store.refuses = 0;
	must(pollux_ep_new(&ep, NULL) == 0);
	must(pollux_efd_new(&e, 1, 0) == 0);
	/* The thread is known from then on. */
	must(pollux_efd_write(e, 1, 0) == 0);
	must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), 0, &ev) == 0);
	must(pollux_efd_write(e, 1, 0) == 0);
	store.refuses = 1;
	while ((r = pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), n, &ev)) == 0)
		n++;
	must(r == -ENOMEM && n > 1);
	while ((r = pollux_ep_new(&more, NULL)) == 0)
		;
	must(r == -ENOMEM);
	store.refuses = 0;
	must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), n, &ev) == 0);
	must(pollux_ep_wait(ep, &ev, 1, 0) == 1);
}

static void wrong_ones_are_refused(void)
{
	struct {
		struct pollux_memory m;
		uint64_t more;
	} large = {.m = memory, .more = 1};
	struct pollux_memory m = memory;
	struct pollux_ep *ep;

	m.size--;
	must(pollux_memory_ops(&m) == -EINVAL);
	m = memory;
	m.flags = 1;
	must(pollux_memory_ops(&m) == -EINVAL);
	m = memory;
	m.map = NULL;
	must(pollux_memory_ops(&m) == -EINVAL);
	m = memory;
	m.unmap = NULL;
	must(pollux_memory_ops(&m) == -EINVAL);
	large.m.size = sizeof(large);
	must(pollux_memory_ops(&large.m) == -E2BIG);
	large.more = 0;
	must(pollux_memory_ops(&large.m) == 0);
	store_begin();
	must(pollux_ep_new(&ep, NULL) == 0);
	must(pollux_memory_ops(&memory) == -EBUSY);
}

static void too_late(void)
{
	struct pollux_ep *ep;

	must(pollux_ep_new(&ep, NULL) == 0);
	must(pollux_memory_ops(&memory) == -EBUSY);
	must(pollux_ep_new(&ep, NULL) == 0);
	must(store.maps == 0);
}

static void child(void (*fn)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		alarm(SOON_MS / 1000);
		fn();
		_exit(0);
	}
	child_passes(pid);
}

static void all_memory_is_of_the_program(void **state)
{
	(void)state;
	not_of_a_sanitizer();
	child(nothing_comes_from_elsewhere);
}

static void none_is_an_error(void **state)
{
	(void)state;
	not_of_a_sanitizer();
	child(nothing_is_given);
}

static void it_has_to_be_right_and_in_time(void **state)
{
	(void)state;
	child(wrong_ones_are_refused);
	child(too_late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_memory_is_of_the_program),
		cmocka_unit_test(none_is_an_error),
		cmocka_unit_test(it_has_to_be_right_and_in_time),
	};

	return RUN(tests);
}
