/* SPDX-License-Identifier: MIT */
/*
 * Requests that are with the thread of --aio=async: each holds what it needs, whatever the
 * program closes, forks or destroys meanwhile, and nothing is touched once it is over.
 */
#include "aio.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "posix/posix.h"

static void async_begin(void)
{
	aio_begin();
	plx_aio_mode = PLX_AIO_ASYNC;
}

/* Nothing but what the test stops is late. */
static void async_begin_at_gates(void)
{
	async_begin();
	points_delay(false);
}

static void submit_ok(aio_context_t ctx, struct req *r)
{
	struct iocb *list = &r->cb;

	assert_int_equal(pollux_io_submit(ctx, 1, &list), 1);
}

/* False if it does not come, or is another's. */
static bool event_comes(aio_context_t ctx, struct req *r)
{
	struct timespec soon = {SOON_MS / 1000, 0};
	struct io_event ev = {0};

	return pollux_io_getevents(ctx, 1, 1, &ev, &soon) == 1 && req_event(&ev) == r &&
	       !torture_failed;
}

/* The next thing that the request has to do, from beginning to end. */
static void transfer(aio_context_t ctx, struct req *r)
{
	req_transfer(r);
	submit_ok(ctx, r);
	assert_true(event_comes(ctx, r));
}

/* Returns when the thread stands at the point with the request. */
static void submit_until(const char *point, struct gate *g, aio_context_t ctx, struct req *r)
{
	gate_arm_any(g, point);
	submit_ok(ctx, r);
	assert_true(gate_reached(g));
}

static void go_on(struct gate *g, aio_context_t ctx, struct req *r)
{
	gate_open(g);
	assert_true(event_comes(ctx, r));
}

static bool no_event(aio_context_t ctx)
{
	struct timespec none = {0};
	struct io_event ev;

	return pollux_io_getevents(ctx, 0, 1, &ev, &none) == 0;
}

/* Links in a folder of /proc/self whose target (of fd) or name (of task) has this in it. */
static int count_in(const char *folder, const char *what)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		char path[512], target[256];
		ssize_t len;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		if (len < 0) {
			int fd;

			snprintf(path, sizeof(path), "%s/%s/comm", folder, e->d_name);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			len = fd < 0 ? 0 : read(fd, target, sizeof(target) - 1);
			close(fd);
		}
		target[len > 0 ? len : 0] = '\0';
		n += strstr(target, what) != NULL;
	}
	closedir(d);
	return n;
}

static int rings(void)
{
	return count_in("/proc/self/fd", "io_uring");
}

/* Those that are not the bell of the thread, which comes and goes with it and its ring. */
static int eventfds(void)
{
	return count_in("/proc/self/fd", "eventfd") - rings();
}

static int threads(void)
{
	return count_in("/proc/self/task", "pollux-aio");
}

/* --- what a request holds ----------------------------------------------------------------------
 */

static void destroy_main(struct thread *t)
{
	aio_context_t *ctx = t->arg;

	if (pollux_io_destroy(*ctx) != 0)
		broken("io_destroy: %s", strerror(errno));
	*ctx = 0;
}

/* AIO-DESTROY-01 to 03, wherever the request is. */
static void destroy_waits(void **state)
{
	static const char *const points[] = {"aio_async_send", "aio_async_done"};
	int fd = aio_file();

	(void)state;
	async_begin_at_gates();
	for (int i = 0; i < 2; i++) {
		aio_context_t ctx = aio_new(4), same = ctx;
		struct thread t;
		struct gate g;
		struct req r;

		req_init(&r, fd, 3, -1);
		req_transfer(&r);
		submit_until(points[i], &g, ctx, &r);
		assert_true(no_event(ctx));
		thread_start(&t, destroy_main, &same);
		assert_true(thread_asleep(&t));
		errno = 0;
		assert_int_equal(pollux_io_destroy(ctx), -1);
		assert_int_equal(errno, EINVAL);
		assert_true(same == ctx);
		gate_open(&g);
		thread_join(&t);
		assert_true(same == 0);
		/* It is the program's again. */
		memset(r.data, 0xa5, sizeof(r.data));
		sleep_ms(QUIET_MS);
		for (size_t k = 0; k < BLOCK / 8; k++)
			assert_true(r.data[k] == 0xa5a5a5a5a5a5a5a5u);
	}
	assert_false(torture_failed);
	close(fd);
}

/* AIO-SUBMIT-07: a request whose event is in the ring takes one place, at every moment. */
static void each_takes_one_place(void **state)
{
	enum { N = 62 };
	static struct req r[4 * N];
	int fd = aio_file(), n = 1;
	aio_context_t ctx;
	int places;
	struct iocb *list;
	struct gate g;

	(void)state;
	async_begin_at_gates();
	ctx = aio_new(N);
	places = (int)((struct plx_aio_ring *)ctx)->nr - 1;
	assert_uint_in_range(places, N, 4 * N - 1);
	for (int i = 0; i < 4 * N; i++) {
		req_init(&r[i], fd, (uint64_t)i, -1);
		req_transfer(&r[i]);
	}
	submit_until("aio_async_posted", &g, ctx, &r[0]);
	while (n < 4 * N && (list = &r[n].cb, pollux_io_submit(ctx, 1, &list)) == 1)
		n++;
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(n, places);
	gate_open(&g);
	for (int i = 0; i < n; i++) {
		struct timespec soon = {SOON_MS / 1000, 0};
		struct io_event ev;

		assert_int_equal(pollux_io_getevents(ctx, 1, 1, &ev, &soon), 1);
		assert_non_null(req_event(&ev));
	}
	assert_true(no_event(ctx));
	assert_false(torture_failed);
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

static int open_again(int fd)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	assert_true(again >= 0);
	return again;
}

/* The kernel's worker that did the request lets go of the file only after its completion. */
static bool lock_comes(int fd)
{
	int64_t start = now_ns();

	while (flock(fd, LOCK_EX | LOCK_NB) != 0)
		if (now_ns() - start > SOON_MS * 1000000ll)
			return false;
		else
			sched_yield();
	return true;
}

/* AIO-CQ-09: the file lives until the request is over, and then no longer. */
static void holds_its_file(void **state)
{
	aio_context_t ctx = aio_new(4);

	(void)state;
	async_begin_at_gates();
	for (int round = 0; round < 50; round++) {
		int fd = aio_file(), other = open_again(fd);
		struct gate g;
		struct req r;

		assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
		req_init(&r, fd, 7, -1);
		req_transfer(&r);
		submit_until("aio_async_send", &g, ctx, &r);
		close(fd);
		/* The lock is that of the open file, which is still there. */
		assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
		go_on(&g, ctx, &r);
		assert_true(lock_comes(other));
		r.fd = other;
		transfer(ctx, &r);
		close(other);
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
}

/* A number that the program has given to another file is nothing to the request. */
static void the_number_may_change(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file(), keep = dup(fd), other = aio_file();
	struct gate g;
	struct req r;

	(void)state;
	async_begin_at_gates();
	req_init(&r, fd, 1, -1);
	req_transfer(&r);
	submit_until("aio_async_send", &g, ctx, &r);
	assert_int_equal(dup2(other, fd), fd);
	go_on(&g, ctx, &r);
	assert_int_equal(lseek(other, 0, SEEK_END), 0);
	r.fd = keep;
	transfer(ctx, &r);
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
	close(keep);
	close(other);
}

/* Closing any descriptor of a file releases the process's POSIX locks on it. */
static void posix_locks_stay(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file(), other = open_again(fd);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
	struct req r;

	(void)state;
	async_begin();
	assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
	req_init(&r, fd, 2, -1);
	for (int i = 0; i < 20; i++) {
		struct flock seen = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

		transfer(ctx, &r);
		assert_int_equal(fcntl(other, F_OFD_GETLK, &seen), 0);
		assert_int_equal(seen.l_type, F_WRLCK);
		assert_int_equal(seen.l_pid, getpid());
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
	close(other);
}

/* AIO-CQ-03: also if the eventfd has become a kernel object, and its number a file's. */
static void tells_the_right_eventfd(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file(), before;
	struct req r;

	(void)state;
	async_begin_at_gates();
	req_init(&r, fd, 0, -1);
	transfer(ctx, &r);
	/* What is kept from the first one on is there. */
	pollux_close(pollux_eventfd(0, EFD_CLOEXEC));
	before = eventfds();
	for (int round = 0; round < 20; round++) {
		unsigned int had = round % 2 ? 5 : 0;
		int e = pollux_eventfd(had, EFD_NONBLOCK | EFD_CLOEXEC);
		int same = pollux_dup(e), file;
		uint64_t v, total = 0;
		struct gate g;

		assert_true(pollux_fd_served(same));
		req_transfer(&r);
		req_resfd(&r, e);
		submit_until(round % 4 < 2 ? "aio_async_done" : "aio_async_send", &g, ctx, &r);
		plx_px_escape(e, PLX_OUT_SYSCALL);
		assert_false(pollux_fd_served(same));
		pollux_close(e);
		file = aio_file();
		assert_int_equal(dup2(file, e), e);
		go_on(&g, ctx, &r);
		/* It is told after the event. */
		assert_true(await(({
			total += read(same, &v, sizeof(v)) == sizeof(v) ? v : 0;
			total > had;
		})));
		assert_int_equal(total, had + 1);
		assert_int_equal(lseek(file, 0, SEEK_END), 0);
		close(e);
		close(file);
		close(same);
		/* Nothing of it is left, hidden or not. */
		assert_true(await(eventfds() == before));
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

/* AIO-CQ-04: a count that is full sticks at 2^64-1, in the kernel as well. */
static void a_full_eventfd(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file();
	struct req r;

	(void)state;
	async_begin_at_gates();
	req_init(&r, fd, 0, -1);
	for (int spilled = 0; spilled < 2; spilled++) {
		int e = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		uint64_t v = UINT64_MAX - 1;
		struct gate g;

		assert_int_equal(pollux_write(e, &v, sizeof(v)), sizeof(v));
		req_transfer(&r);
		req_resfd(&r, e);
		submit_until("aio_async_done", &g, ctx, &r);
		if (spilled)
			plx_px_escape(e, PLX_OUT_SYSCALL);
		go_on(&g, ctx, &r);
		assert_int_equal(pollux_io_destroy(ctx), 0);
		assert_int_equal(pollux_read(e, &v, sizeof(v)), sizeof(v));
		assert_true(v == UINT64_MAX);
		pollux_close(e);
		ctx = aio_new(4);
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

/* AIO-CANCEL-02. */
static void is_not_cancelled(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file();
	struct io_event unused;
	struct gate g;
	struct req r;

	(void)state;
	async_begin_at_gates();
	req_init(&r, fd, 0, -1);
	req_transfer(&r);
	submit_until("aio_async_send", &g, ctx, &r);
	errno = 0;
	assert_int_equal(pollux_io_cancel(ctx, &r.cb, &unused), -1);
	assert_int_equal(errno, EINVAL);
	go_on(&g, ctx, &r);
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

/* More than the thread takes at a time: what is beyond is done in another way. */
#define MANY 5000

static void more_than_there_are_places(void **state)
{
	struct iocb *cb = calloc(MANY, sizeof(*cb)), *list[1];
	struct io_event *ev = calloc(MANY, sizeof(*ev));
	struct timespec soon = {SOON_MS / 1000, 0};
	aio_context_t ctx = aio_new(MANY);
	char byte[] = {'x'};
	int fd = aio_file();
	uint64_t seen = 0;
	struct gate g;

	(void)state;
	async_begin_at_gates();
	gate_arm_any(&g, "aio_async_send");
	for (int i = 0; i < MANY; i++) {
		cb[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		cb[i].aio_fildes = (uint32_t)fd;
		cb[i].aio_buf = (uintptr_t)byte;
		cb[i].aio_nbytes = 1;
		cb[i].aio_offset = i;
		cb[i].aio_data = (uint64_t)i;
		list[0] = &cb[i];
		assert_int_equal(pollux_io_submit(ctx, 1, list), 1);
	}
	assert_true(gate_reached(&g));
	gate_open(&g);
	assert_int_equal(pollux_io_getevents(ctx, MANY, MANY, ev, &soon), MANY);
	for (int i = 0; i < MANY; i++) {
		assert_true(ev[i].res == 1);
		seen += ev[i].data;
	}
	assert_true(seen == (uint64_t)MANY * (MANY - 1) / 2);
	assert_int_equal(lseek(fd, 0, SEEK_END), MANY);
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
	free(cb);
	free(ev);
}

/* The thread is not there for longer than it is needed, and comes back as often as it is. */
static void comes_and_goes(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file();
	struct req r;

	(void)state;
	async_begin();
	req_init(&r, fd, 0, -1);
	for (int round = 0; round < 3; round++) {
		struct gate g;

		assert_true(await(threads() == 0));
		assert_int_equal(rings(), 0);
		/* While something is on its way it stays, however long that takes. */
		req_transfer(&r);
		submit_until("aio_async_done", &g, ctx, &r);
		assert_int_equal(rings(), 1);
		assert_int_equal(threads(), 1);
		go_on(&g, ctx, &r);
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

/* Requests that come just when the thread is about to go. */
static void submits_as_it_goes(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file();
	struct req r;

	(void)state;
	async_begin_at_gates();
	req_init(&r, fd, 0, -1);
	for (int round = 0; round < 3; round++) {
		struct gate g, leave;

		req_transfer(&r);
		submit_until("aio_async_done", &g, ctx, &r);
		/* While it cannot go: it must not be quicker than we are. */
		gate_arm_any(&leave, "aio_async_leave");
		go_on(&g, ctx, &r);
		assert_true(gate_reached(&leave));
		/* It finds that it is wanted, and stays. */
		req_transfer(&r);
		submit_ok(ctx, &r);
		assert_true(no_event(ctx));
		gate_open(&leave);
		assert_true(event_comes(ctx, &r));
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

/* --- processes ---------------------------------------------------------------------------------
 */

/* In a child of the process that has ctx. The step that went wrong, or 0. */
static int child(aio_context_t ctx, int fd, bool seen)
{
	aio_context_t own = 0;
	struct gate g;
	struct req r;

	if (!no_event(ctx) && errno != EINVAL)
		return 1;
	/* Nobody has told the library of the other kind of fork. */
	if (rings() != (seen ? 0 : 1))
		return 2;
	if (pollux_io_setup(4, &own) != 0)
		return 3;
	req_init(&r, fd, 100, -1);
	for (int i = 0; i < 4; i++) {
		struct iocb *list = &r.cb;

		req_transfer(&r);
		if (i == 3)
			gate_arm_any(&g, "aio_async_done");
		if (pollux_io_submit(own, 1, &list) != 1)
			return 4;
		/* While it is sure to be there. */
		if (i == 3 && (!gate_reached(&g) || rings() != 1 || threads() != 1))
			return 5;
		if (i == 3)
			gate_open(&g);
		if (!event_comes(own, &r))
			return 4;
	}
	return pollux_io_destroy(own) == 0 ? 0 : 6;
}

static int raw_fork(void)
{
	return (int)syscall(SYS_clone, (unsigned long)SIGCHLD, 0UL, 0UL, 0UL, 0UL);
}

static void forks_with_requests_on_their_way(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fd = aio_file();

	(void)state;
	async_begin_at_gates();
	for (int round = 0; round < 6; round++) {
		bool seen = round % 2;
		struct gate g;
		struct req r;
		int status = -1, pid;

		req_init(&r, fd, 5, -1);
		req_transfer(&r);
		submit_until(round % 4 < 2 ? "aio_async_send" : "aio_async_done", &g, ctx, &r);
		pid = seen ? pollux_fork() : raw_fork();
		if (pid == 0)
			_exit(child(ctx, fd, seen));
		assert_true(pid > 0);
		go_on(&g, ctx, &r);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(pollux_io_destroy(ctx), 0);
	close(fd);
}

/* Too few descriptors for the ring's table: everything works, in the usual way. */
static int poor_child(int fd)
{
	struct rlimit few = {40, 40};
	aio_context_t ctx = 0;
	struct iocb *list;
	struct req r;

	if (setrlimit(RLIMIT_NOFILE, &few) != 0 || pollux_io_setup(4, &ctx) != 0)
		return 1;
	req_init(&r, fd, 9, -1);
	list = &r.cb;
	for (int i = 0; i < 4; i++) {
		req_transfer(&r);
		if (pollux_io_submit(ctx, 1, &list) != 1 || !event_comes(ctx, &r))
			return 2;
	}
	/* A thread that finds that it has no ring ends, a little later. */
	return await(threads() == 0) && rings() == 0 ? 0 : 3;
}

static void no_room_for_the_ring(void **state)
{
	int fd = aio_file(), status = -1, pid;

	(void)state;
	async_begin();
	pid = pollux_fork();
	if (pid == 0)
		_exit(poor_child(fd));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd);
}

/* --- everything at once --------------------------------------------------------------------------
 */

#define OWNERS 3
#define OWN 6

struct shared {
	unsigned long contexts, early, told, forks;
	int fd;
};

/* Contexts come and go, half of them with requests on their way; none is touched later. */
static void owner(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t rng = (uint32_t)t->tid;
	uint64_t block = (uint64_t)t->tid * OWN;
	struct req r[OWN];

	for (int i = 0; i < OWN; i++)
		req_init(&r[i], s->fd, block + (uint64_t)i, -1);
	while (!stopping()) {
		int e = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), flying = 0;
		unsigned long accepted = 0;
		aio_context_t ctx = 0;
		uint64_t told = 0, v;

		if (e < 0 || pollux_io_setup(OWN, &ctx) != 0) {
			broken("io_setup: %s", strerror(errno));
			return;
		}
		for (int i = 0; i < OWN; i++) {
			struct iocb *list = &r[i].cb;

			req_transfer(&r[i]);
			req_resfd(&r[i], e);
			if (pollux_io_submit(ctx, 1, &list) != 1)
				broken("io_submit: %s", strerror(errno));
			accepted++;
		}
		flying = OWN;
		while (flying && rnd(&rng) % 4) {
			struct io_event ev[OWN];
			int n = aio_getevents_beside_forks(ctx, rnd(&rng) % 2, OWN, ev);

			if (n < 0)
				broken("io_getevents: %s", strerror(errno));
			for (int i = 0; i < n; i++)
				(void)req_event(&ev[i]);
			flying -= n > 0 ? n : 0;
		}
		if (pollux_io_destroy(ctx) != 0)
			broken("io_destroy: %s", strerror(errno));
		atomic_add(&s->early, flying > 0);
		/* Those whose events were lost with the context have happened all the same. */
		for (int i = 0; i < OWN; i++) {
			if (atomic_get(&r[i].state) == IDLE)
				continue;
			for (unsigned int k = 0; r[i].reading && k < BLOCK / 8; k++)
				if (r[i].data[k] != req_word(&r[i], k)) {
					broken("a read that was lost read something else");
					break;
				}
			r[i].reading = !r[i].reading;
			atomic_set(&r[i].state, IDLE);
		}
		while (pollux_read(e, &v, sizeof(v)) == sizeof(v))
			told += v;
		if (told != accepted)
			broken("%lu accepted, told of %lu", accepted, (unsigned long)told);
		pollux_close(e);
		atomic_add(&s->contexts, 1);
		atomic_add(&s->told, told);
	}
}

static void everything_at_once(void **state)
{
	struct shared s = {.fd = aio_file()};
	struct thread t[OWNERS];
	int64_t start = now_ns();

	(void)state;
	async_begin();
	for (int i = 0; i < OWNERS; i++)
		thread_start(&t[i], owner, &s);
	while (torture_until(start, s.forks > 5 && atomic_get(&s.early) > 20)) {
		int status = -1, pid = pollux_fork();

		if (pid == 0)
			_exit(rings() == 0 ? 0 : 1);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			broken("a child: %d", status);
		s.forks++;
		sleep_ms(2);
	}
	torture_end(t, OWNERS);
	print_message("%lu contexts, %lu destroyed with requests on their way, told of %lu, "
		      "%lu forks\n",
		      s.contexts, s.early, s.told, s.forks);
	assert_true(s.early > 20 && s.forks > 5);
	close(s.fd);
}

/* --- the end, which is for good
 * -------------------------------------------------------------------- */

static void stops(void **state)
{
	struct shared s = {.fd = aio_file()};
	struct thread t[OWNERS];
	unsigned long before;

	(void)state;
	async_begin();
	for (int i = 0; i < OWNERS; i++)
		thread_start(&t[i], owner, &s);
	assert_true(await(atomic_get(&s.contexts) > 5 || torture_failed));
	assert_true(await(rings() == 1 && threads() == 1));
	plx_aio_async_stop();
	assert_int_equal(rings(), 0);
	assert_true(await(threads() == 0));
	before = atomic_get(&s.contexts);
	assert_true(await(atomic_get(&s.contexts) > before + 5 || torture_failed));
	torture_end(t, OWNERS);
	assert_int_equal(rings(), 0);
	assert_int_equal(threads(), 0);
	plx_aio_async_stop();
	plx_aio_async_drain();
	close(s.fd);
}

/* Whether this machine, and this build, have the mode at all. */
static bool available(void)
{
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_nbytes = 1};
	struct iocb *list = &cb;
	aio_context_t ctx = 0;
	struct io_event ev;
	bool there;

	plx_aio_mode = PLX_AIO_ASYNC;
	cb.aio_fildes = (uint32_t)memfd_create("torture", MFD_CLOEXEC);
	cb.aio_buf = (uintptr_t)&there;
	there = pollux_io_setup(1, &ctx) == 0 && pollux_io_submit(ctx, 1, &list) == 1 &&
		pollux_io_getevents(ctx, 1, 1, &ev, NULL) == 1 && rings() == 1;
	(void)pollux_io_destroy(ctx);
	close((int)cb.aio_fildes);
	return there;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(destroy_waits),
		TEST(each_takes_one_place),
		TEST(holds_its_file),
		TEST(the_number_may_change),
		TEST(posix_locks_stay),
		TEST(tells_the_right_eventfd),
		TEST(a_full_eventfd),
		TEST(is_not_cancelled),
		TEST(more_than_there_are_places),
		TEST(comes_and_goes),
		TEST(submits_as_it_goes),
		TEST(forks_with_requests_on_their_way),
		TEST(no_room_for_the_ring),
		TEST(everything_at_once),
		TEST(stops),
	};

	if (!available()) {
		print_message("skip: io_uring is not permitted here, or Pollux was built without "
			      "liburing\n");
		return 77;
	}
	return RUN(tests);
}
