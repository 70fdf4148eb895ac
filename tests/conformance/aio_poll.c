/* SPDX-License-Identifier: MIT */
/* IOCB_CMD_POLL: its mask, what completes it at once or later, and with which bits. */
#include "aio.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <termios.h>

#define ALWAYS (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM)

/* A request that must not be complete yet. */
static void waits_for(aio_context_t ctx, struct iocb *cb)
{
	aio_accept1(ctx, cb);
	aio_none(ctx);
}

/* It goes on waiting although something has happened. */
static void still_waits(aio_context_t ctx)
{
	sleep_ms(QUIET_MS);
	aio_none(ctx);
}

static void sockets(int s[2], int type)
{
	assert_ok(socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, s));
}

/* A TCP connection over loopback; l is the socket that listens. */
static void tcp(int *l, int s[2])
{
	tcp_waiting(l, &s[0]);
	s[1] = (int)assert_ok(accept4(*l, NULL, NULL, SOCK_CLOEXEC));
}

/* Write ends and read ends are closed here and there. */
/* --- AIO-POLL-01 ----------------------------------------------------------------------------- */

static void AIO_POLL_01_the_mask_has_16_bits(void **state)
{
	static const uint64_t bad[] = {0x10000,	   0x10001,    0x80000000,
				       0xffffffff, 1ull << 32, (1ull << 32) | POLLIN,
				       1ull << 63, ~0ull};
	aio_context_t ctx = aio_new(4);
	int file = file_in_memory(8), efd = efd_new(1, 0), p[2];
	struct iocb cb;

	(void)state;
	aio_pipe(p, 0);
	put(p[1]);
	for (int i = 0; i < 8; i++) {
		aio_prep(&cb, IOCB_CMD_POLL, file, (void *)(uintptr_t)bad[i], 0, 0);
		aio_refuses(ctx, &cb, EINVAL);
		cb.aio_fildes = (uint32_t)p[0];
		aio_refuses(ctx, &cb, EINVAL);
		cb.aio_fildes = (uint32_t)efd;
		aio_refuses(ctx, &cb, EINVAL);
	}
	aio_does(ctx, aio_poll(&cb, file, 0xffff), ALWAYS);
	aio_does(ctx, aio_poll(&cb, p[0], 0xffff), POLLIN | POLLRDNORM);
	aio_does(ctx, aio_poll(&cb, efd, 0xffff), POLLIN | POLLOUT);
	close_both(p);
	close(efd);
	close(file);
	aio_free(ctx);
}

static void AIO_POLL_01_fields_that_must_be_zero(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(8), efd = efd_new(1, 0);
	struct iocb cb;

	(void)state;
	for (int on_efd = 0; on_efd < 2; on_efd++) {
		for (int field = 0; field < 6; field++) {
			aio_poll(&cb, on_efd ? efd : file, POLLIN);
			switch (field) {
			case 0:
				cb.aio_offset = 1;
				break;
			case 1:
				cb.aio_offset = INT64_MIN;
				break;
			case 2:
				cb.aio_nbytes = 1;
				break;
			case 3:
				cb.aio_nbytes = INT64_MAX;
				break;
			case 4:
				cb.aio_rw_flags = 1;
				break;
			default:
				cb.aio_rw_flags = 1u << 31;
			}
			aio_refuses(ctx, &cb, EINVAL);
		}
		/* These are not looked at. */
		aio_poll(&cb, on_efd ? efd : file, POLLIN);
		cb.aio_reqprio = -1;
		cb.aio_resfd = ~0u;
		aio_does(ctx, &cb, POLLIN);
	}
	close(efd);
	close(file);
	aio_free(ctx);
}

static void AIO_POLL_01_after_the_descriptors(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(8);
	struct iocb cb;

	(void)state;
	aio_refuses(ctx, aio_poll(&cb, -1, 0x10000), EBADF);
	aio_refuses(ctx, aio_resfd(aio_poll(&cb, file, 0x10000), -1), EBADF);
	close(file);
	aio_refuses(ctx, aio_poll(&cb, file, POLLIN), EBADF);
	file = (int)assert_ok(open("/dev/null", O_PATH));
	aio_refuses(ctx, aio_poll(&cb, file, POLLIN), EBADF);
	close(file);
	aio_free(ctx);
}

/* --- AIO-POLL-02 ----------------------------------------------------------------------------- */

static void AIO_POLL_02_hup_and_err_are_always_added(void **state)
{
	static const unsigned int masks[] = {0, POLLPRI, POLLRDBAND, POLLNVAL};
	aio_context_t ctx = aio_new(4);
	struct iocb a, b;
	int p[2], s[2];

	(void)state;
	for (int i = 0; i < 4; i++) {
		aio_pipe(p, 0);
		/* Neither data nor room ends a wait for these. */
		waits_for(ctx, aio_poll(&a, p[0], masks[i]));
		put(p[1]);
		still_waits(ctx);
		close(p[1]);
		aio_expect(ctx, &a, POLLHUP);
		aio_does(ctx, aio_poll(&a, p[0], masks[i]), POLLHUP);
		close(p[0]);

		aio_pipe(p, 0);
		waits_for(ctx, aio_poll(&b, p[1], masks[i]));
		close(p[0]);
		aio_expect(ctx, &b, POLLERR);
		aio_does(ctx, aio_poll(&b, p[1], masks[i]), POLLERR);
		close(p[1]);

		/* The wakes of sockets have these two bits in their key. */
		if (masks[i] & (POLLPRI | POLLRDBAND))
			continue;
		sockets(s, SOCK_STREAM);
		waits_for(ctx, aio_poll(&a, s[0], masks[i]));
		put(s[1]);
		still_waits(ctx);
		close(s[1]);
		aio_expect(ctx, &a, POLLHUP);
		close(s[0]);
	}
	aio_none(ctx);
	aio_free(ctx);
}

/* --- AIO-POLL-03 ----------------------------------------------------------------------------- */

/* The event is there when io_submit returns. */
static void at_once(aio_context_t ctx, int fd, unsigned int mask, int want)
{
	struct iocb cb;

	aio_accept1(ctx, aio_poll(&cb, fd, mask));
	if (ring_count(ring_of(ctx)) != 1)
		print_error("mask %#x: %u events in the ring\n", mask, ring_count(ring_of(ctx)));
	assert_int_equal(ring_count(ring_of(ctx)), 1);
	aio_expect(ctx, &cb, want);
	aio_none(ctx);
}

static void AIO_POLL_03_what_is_ready_completes_at_once(void **state)
{
	aio_context_t ctx = aio_new(4);
	int p[2], s[2], efd = efd_new(3, 0);

	(void)state;
	aio_pipe(p, 0);
	put(p[1]);
	at_once(ctx, p[0], POLLIN, POLLIN);
	at_once(ctx, p[0], POLLIN | POLLOUT, POLLIN);
	at_once(ctx, p[0], POLLRDNORM, POLLRDNORM);
	at_once(ctx, p[0], POLLIN | POLLRDNORM | POLLPRI, POLLIN | POLLRDNORM);
	at_once(ctx, p[1], POLLOUT | POLLIN, POLLOUT);
	at_once(ctx, p[1], 0xffff, POLLOUT | POLLWRNORM);
	close(p[1]);
	at_once(ctx, p[0], POLLIN, POLLIN | POLLHUP);
	at_once(ctx, p[0], POLLOUT, POLLHUP);
	close(p[0]);

	sockets(s, SOCK_STREAM);
	at_once(ctx, s[0], POLLIN | POLLOUT, POLLOUT);
	at_once(ctx, s[0], 0xffff, POLLOUT | POLLWRNORM | POLLWRBAND);
	put(s[1]);
	at_once(ctx, s[0], 0xffff, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLWRBAND);
	assert_ok(shutdown(s[1], SHUT_WR));
	at_once(ctx, s[0], POLLRDHUP, POLLRDHUP);
	close_both(s);

	at_once(ctx, efd, POLLIN, POLLIN);
	at_once(ctx, efd, POLLOUT, POLLOUT);
	at_once(ctx, efd, POLLIN | POLLOUT | POLLRDNORM, POLLIN | POLLOUT);
	close(efd);
	aio_free(ctx);
}

/* Of files of all kinds. */
static void AIO_POLL_03_whatever_the_file_is(void **state)
{
	const struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
	aio_context_t ctx = aio_new(4);
	int ep = ep_new(), efd = efd_new(0, EFD_NONBLOCK), timer, l, t[2], p[2];

	(void)state;
	aio_pipe(p, 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 1));
	efd_add(efd, 1);
	at_once(ctx, ep, POLLIN, POLLIN);
	at_once(ctx, ep, 0xffff, POLLIN | POLLRDNORM);
	efd_take(efd);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 2));
	put(p[1]);
	at_once(ctx, ep, POLLIN, POLLIN);
	close_both(p);
	close(ep);

	/* Full, so that there is no room. */
	efd_add(efd, COUNT_MAX);
	at_once(ctx, efd, POLLIN | POLLOUT, POLLIN);
	close(efd);

	timer = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	assert_ok(timerfd_settime(timer, 0, &soon, NULL));
	assert_int_equal(poll(&(struct pollfd){.fd = timer, .events = POLLIN}, 1, SOON_MS), 1);
	at_once(ctx, timer, POLLIN | POLLOUT, POLLIN);
	close(timer);

	tcp(&l, t);
	at_once(ctx, t[0], POLLIN | POLLOUT, POLLOUT);
	put(t[1]);
	at_once(ctx, t[0], POLLIN, POLLIN);
	close_both(t);
	close(l);
	aio_free(ctx);
}

/* The key becomes 0, and an eventfd is told, who may be what is polled. */
static void AIO_POLL_03_AIO_CQ_02_and_tells(void **state)
{
	aio_context_t ctx = aio_new(4);
	int p[2], efd = efd_new(0, EFD_NONBLOCK);
	struct iocb cb;

	(void)state;
	aio_pipe(p, 0);
	aio_resfd(aio_poll(&cb, p[1], POLLOUT), efd)->aio_key = 7;
	aio_accept1(ctx, &cb);
	assert_int_equal(cb.aio_key, 0);
	assert_int_equal(ring_count(ring_of(ctx)), 1);
	efd_take(efd);
	aio_expect(ctx, &cb, POLLOUT);
	aio_accept1(ctx, aio_resfd(aio_poll(&cb, efd, POLLIN | POLLOUT), efd));
	aio_expect(ctx, &cb, POLLOUT);
	aio_accept1(ctx, aio_resfd(aio_poll(&cb, efd, POLLIN | POLLOUT), efd));
	aio_expect(ctx, &cb, POLLIN | POLLOUT);
	assert_int_equal(efd_take(efd), 2);
	close(efd);
	close_both(p);
	aio_free(ctx);
}

/* What the ring's mapping is, and its number. */
static void ring_is(aio_context_t ctx, char name[256], uint32_t *id)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[4352];

	assert_non_null(f);
	*name = 0;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= ctx && ctx < to)
			snprintf(name, 256, "%s", strchr(line, '/'));
	fclose(f);
	assert_true(*name != 0);
	*id = ring_of(ctx)->id;
}

/* What is ready is not waited for, so the ring stays the memory that it was. */
static void AIO_POLL_03_the_ring_is_the_same(void **state)
{
	aio_context_t ctx = aio_new(8);
	char before[256], after[256];
	int p[2], efd = efd_new(1, 0), file = file_in_memory(8);
	uint32_t id[2];

	(void)state;
	aio_pipe(p, 0);
	put(p[1]);
	ring_is(ctx, before, &id[0]);
	at_once(ctx, p[0], POLLIN, POLLIN);
	at_once(ctx, p[1], POLLOUT, POLLOUT);
	at_once(ctx, efd, POLLIN, POLLIN);
	at_once(ctx, file, POLLIN, POLLIN);
	ring_is(ctx, after, &id[1]);
	assert_string_equal(before, after);
	assert_int_equal(id[0], id[1]);
	close_both(p);
	close(file);
	close(efd);
	aio_free(ctx);
}

/* Requests before and behind it keep their places. */
static void AIO_POLL_03_in_a_batch(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(16), p[2];
	struct iocb cb[6], *list[6];
	struct io_event ev[6];
	char buf[6];

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < 6; i++)
		list[i] = i % 2 ? aio_poll(&cb[i], p[1], POLLOUT)
				: aio_pread(&cb[i], file, &buf[i], 1, i);
	aio_accept(ctx, list, 6);
	aio_take(ctx, ev, 6);
	for (int i = 0; i < 6; i++)
		aio_check(&ev[i], &cb[i], i % 2 ? POLLOUT : 1);
	close_both(p);
	close(file);
	aio_free(ctx);
}

/* One that is not ready waits, and what was complete before it stays where it is. */
static void AIO_POLL_03_then_one_that_is_not_ready(void **state)
{
	aio_context_t ctx = aio_new(8);
	int efd = efd_new(0, EFD_NONBLOCK), p[2];
	struct iocb cb[5], *list[5];
	struct io_event ev[5];

	(void)state;
	aio_pipe(p, 0);
	for (int round = 0; round < 3; round++) {
		list[0] = aio_poll(&cb[0], p[1], POLLOUT);
		list[1] = aio_poll(&cb[1], efd, POLLOUT);
		list[2] = aio_poll(&cb[2], efd, POLLIN);
		list[3] = aio_poll(&cb[3], p[1], POLLOUT);
		list[4] = aio_poll(&cb[4], p[0], POLLIN);
		aio_accept(ctx, list, 5);
		assert_int_equal(ring_count(ring_of(ctx)), 3);
		put(p[1]);
		efd_add(efd, 1);
		aio_take(ctx, ev, 5);
		aio_check(&ev[0], &cb[0], POLLOUT);
		aio_check(&ev[1], &cb[1], POLLOUT);
		aio_check(&ev[2], &cb[3], POLLOUT);
		aio_check(&ev[3], &cb[4], POLLIN | POLLRDNORM);
		aio_check(&ev[4], &cb[2], POLLIN);
		get(p[0]);
		efd_take(efd);
	}
	close_both(p);
	close(efd);
	aio_free(ctx);
}

/* --- AIO-POLL-04 ----------------------------------------------------------------------------- */

static void AIO_POLL_04_one_shot(void **state)
{
	aio_context_t ctx = aio_new(4);
	int fds[3][2];
	struct iocb cb;

	(void)state;
	aio_pipe(fds[0], O_NONBLOCK);
	sockets(fds[1], SOCK_STREAM);
	fds[2][0] = fds[2][1] = efd_new(0, EFD_NONBLOCK);
	for (int i = 0; i < 3; i++) {
		const uint64_t one = 1;
		size_t n = i == 2 ? 8 : 1;
		char buf[8];

		for (int again = 0; again < 3; again++) {
			waits_for(ctx, aio_poll(&cb, fds[i][0], POLLIN));
			assert_int_equal(write(fds[i][1], &one, n), n);
			aio_take(ctx, &(struct io_event){0}, 1);
			assert_int_equal(write(fds[i][1], &one, n), n);
			still_waits(ctx);
			while (read(fds[i][0], buf, n) > 0)
				;
			assert_int_equal(write(fds[i][1], &one, n), n);
			assert_int_equal(read(fds[i][0], buf, n), n);
			still_waits(ctx);
		}
	}
	close_both(fds[0]);
	close_both(fds[1]);
	close(fds[2][0]);
	aio_free(ctx);
}

/* --- AIO-POLL-05 ----------------------------------------------------------------------------- */

static void AIO_POLL_05_files_without_poll_are_always_ready(void **state)
{
	static const unsigned int meets[] = {POLLIN,	 POLLOUT,	   POLLRDNORM,
					     POLLWRNORM, POLLIN | POLLPRI, 0xffff};
	static const unsigned int misses[] = {0,	 POLLPRI,	  POLLERR,    POLLHUP,
					      POLLNVAL,	 POLLRDBAND,	  POLLWRBAND, POLLMSG,
					      POLLRDHUP, 0xffff & ~ALWAYS};
	aio_context_t ctx = aio_new(1);
	int file[5];
	struct iocb cb;

	(void)state;
	file[0] = file_in_memory(8);
	file[1] = file_on_disk(8, 0);
	file[2] = (int)assert_ok(open("/", O_RDONLY | O_DIRECTORY));
	file[3] = (int)assert_ok(open("/dev/null", O_WRONLY));
	file[4] = (int)assert_ok(open("/dev/zero", O_RDONLY));
	for (int i = 0; i < 5; i++) {
		for (int m = 0; m < 6; m++)
			aio_does(ctx, aio_poll(&cb, file[i], meets[m]), meets[m] & ALWAYS);
		for (int m = 0; m < 10; m++)
			aio_refuses(ctx, aio_poll(&cb, file[i], misses[m]), EINVAL);
		close(file[i]);
	}
	aio_free(ctx);
}

/* --- AIO-POLL-06 ----------------------------------------------------------------------------- */

static void AIO_POLL_06_a_fifo_for_both_has_two_queues(void **state)
{
	aio_context_t ctx = aio_new(4);
	const char *dir = getenv("TMPDIR");
	char path[4096], name[64];
	struct iocb cb;
	int fifo, rd;

	(void)state;
	snprintf(path, sizeof(path), "%s/pollux-fifo-XXXXXX", dir != NULL ? dir : "/tmp");
	close((int)assert_ok(mkstemp(path)));
	assert_ok(unlink(path));
	assert_ok(mkfifo(path, 0600));
	fifo = (int)assert_ok(open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	assert_ok(unlink(path));
	aio_refuses(ctx, aio_poll(&cb, fifo, POLLIN), EINVAL);
	aio_refuses(ctx, aio_poll(&cb, fifo, POLLPRI), EINVAL);
	aio_refuses(ctx, aio_poll(&cb, fifo, 0), EINVAL);
	aio_does(ctx, aio_poll(&cb, fifo, POLLOUT), POLLOUT);
	aio_does(ctx, aio_poll(&cb, fifo, POLLIN | POLLOUT), POLLOUT);
	put(fifo);
	aio_does(ctx, aio_poll(&cb, fifo, POLLIN), POLLIN);
	get(fifo);
	aio_refuses(ctx, aio_poll(&cb, fifo, POLLIN), EINVAL);
	/* Opened for one of them it has one. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fifo);
	rd = (int)assert_ok(open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	waits_for(ctx, aio_poll(&cb, rd, POLLIN));
	put(fifo);
	aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
	/* What was refused has left nothing behind. */
	still_waits(ctx);
	close(rd);
	close(fifo);
	aio_free(ctx);
}

/* --- AIO-POLL-07 ----------------------------------------------------------------------------- */

static void AIO_POLL_07_the_whole_key_of_the_wake(void **state)
{
	aio_context_t ctx = aio_new(4);
	static char page[65536];
	struct iocb cb;
	int p[2], s[2], l, t[2];

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	waits_for(ctx, aio_poll(&cb, p[0], POLLIN));
	put(p[1]);
	aio_expect(ctx, &cb, 0x41);
	get(p[0]);
	waits_for(ctx, aio_poll(&cb, p[0], POLLRDNORM));
	put(p[1]);
	aio_expect(ctx, &cb, 0x41);
	get(p[0]);
	while (write(p[1], page, sizeof(page)) > 0)
		;
	waits_for(ctx, aio_poll(&cb, p[1], POLLOUT));
	assert_int_equal(read(p[0], page, sizeof(page)), 65536);
	aio_expect(ctx, &cb, POLLOUT | POLLWRNORM);
	close_both(p);

	sockets(s, SOCK_STREAM);
	waits_for(ctx, aio_poll(&cb, s[0], POLLIN));
	put(s[1]);
	aio_expect(ctx, &cb, 0xc3);
	get(s[0]);
	/* Urgent data come with the same key, so that a wait for them ends with any. */
	waits_for(ctx, aio_poll(&cb, s[0], POLLPRI));
	put(s[1]);
	aio_expect(ctx, &cb, 0xc3);
	close_both(s);

	sockets(s, SOCK_DGRAM);
	waits_for(ctx, aio_poll(&cb, s[0], POLLIN));
	put(s[1]);
	aio_expect(ctx, &cb, 0xc3);
	close_both(s);

	tcp(&l, t);
	waits_for(ctx, aio_poll(&cb, t[0], POLLIN));
	put(t[1]);
	aio_expect(ctx, &cb, 0xc3);
	close_both(t);
	close(l);
	aio_free(ctx);
}

static void AIO_POLL_07_eventfds_timers_and_terminals(void **state)
{
	const struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
	aio_context_t ctx = aio_new(4);
	int efd = efd_new(0, EFD_NONBLOCK), timer, master, slave;
	struct termios raw;
	struct iocb cb;
	char name[64];

	(void)state;
	waits_for(ctx, aio_poll(&cb, efd, POLLIN));
	efd_add(efd, 1);
	aio_expect(ctx, &cb, POLLIN);
	efd_take(efd);
	waits_for(ctx, aio_poll(&cb, efd, POLLIN | POLLRDNORM));
	efd_add(efd, COUNT_MAX);
	aio_expect(ctx, &cb, POLLIN);
	waits_for(ctx, aio_poll(&cb, efd, POLLOUT));
	efd_take(efd);
	aio_expect(ctx, &cb, POLLOUT);
	close(efd);

	timer = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	waits_for(ctx, aio_poll(&cb, timer, POLLIN | POLLPRI));
	assert_ok(timerfd_settime(timer, 0, &soon, NULL));
	aio_expect(ctx, &cb, POLLIN);
	close(timer);

	master = (int)assert_ok(posix_openpt(O_RDWR | O_NOCTTY));
	assert_ok(grantpt(master));
	assert_ok(unlockpt(master));
	assert_int_equal(ptsname_r(master, name, sizeof(name)), 0);
	slave = (int)assert_ok(open(name, O_RDWR | O_NOCTTY));
	assert_ok(tcgetattr(slave, &raw));
	cfmakeraw(&raw);
	assert_ok(tcsetattr(slave, TCSANOW, &raw));
	/* A terminal has a queue for each direction. */
	aio_refuses(ctx, aio_poll(&cb, slave, POLLIN), EINVAL);
	put(master);
	assert_int_equal(poll(&(struct pollfd){.fd = slave, .events = POLLIN}, 1, SOON_MS), 1);
	aio_does(ctx, aio_poll(&cb, slave, POLLIN), POLLIN);
	close(slave);
	close(master);
	aio_free(ctx);
}

/* --- AIO-POLL-08 ----------------------------------------------------------------------------- */

static void AIO_POLL_08_a_wake_without_key_looks_again(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	int p[2], s[2];

	(void)state;
	aio_pipe(p, 0);
	waits_for(ctx, aio_poll(&cb, p[0], POLLIN));
	close(p[1]);
	aio_expect(ctx, &cb, 0x10);
	close(p[0]);

	/* The last writer is what counts. */
	aio_pipe(p, 0);
	s[0] = (int)assert_ok(fcntl(p[1], F_DUPFD_CLOEXEC, 0));
	waits_for(ctx, aio_poll(&cb, p[0], POLLIN));
	close(p[1]);
	still_waits(ctx);
	close(s[0]);
	aio_expect(ctx, &cb, 0x10);
	close(p[0]);

	sockets(s, SOCK_STREAM);
	waits_for(ctx, aio_poll(&cb, s[0], POLLRDHUP));
	close(s[1]);
	aio_expect(ctx, &cb, POLLRDHUP | POLLHUP);
	close(s[0]);

	sockets(s, SOCK_STREAM);
	waits_for(ctx, aio_poll(&cb, s[0], POLLIN));
	close(s[1]);
	aio_expect(ctx, &cb, POLLIN | POLLHUP);
	close(s[0]);
	aio_free(ctx);
}

static void AIO_POLL_08_and_waits_on_if_nothing_is_ready(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	int s[2];

	(void)state;
	sockets(s, SOCK_STREAM);
	waits_for(ctx, aio_poll(&cb, s[0], 0));
	/* The peer will not write any more: that is neither HUP nor ERR. */
	assert_ok(shutdown(s[1], SHUT_WR));
	still_waits(ctx);
	assert_ok(shutdown(s[0], SHUT_WR));
	aio_expect(ctx, &cb, POLLHUP);
	close_both(s);

	sockets(s, SOCK_STREAM);
	waits_for(ctx, aio_poll(&cb, s[0], POLLRDHUP));
	assert_ok(shutdown(s[1], SHUT_WR));
	aio_expect(ctx, &cb, POLLRDHUP);
	close_both(s);
	aio_free(ctx);
}

/* --- AIO-POLL-09 ----------------------------------------------------------------------------- */

static void AIO_POLL_09_keys_that_miss_the_mask_are_ignored(void **state)
{
	aio_context_t ctx = aio_new(4);
	int p[2], s[2], efd = efd_new(0, EFD_NONBLOCK);
	static char big[1 << 16];
	struct iocb cb, other;

	(void)state;
	aio_pipe(p, 0);
	waits_for(ctx, aio_poll(&cb, p[0], POLLOUT));
	for (int i = 0; i < 10; i++)
		put(p[1]);
	still_waits(ctx);
	close(p[1]);
	aio_expect(ctx, &cb, POLLHUP);
	close(p[0]);

	waits_for(ctx, aio_poll(&cb, efd, POLLPRI));
	efd_add(efd, 1);
	efd_take(efd);
	still_waits(ctx);
	/* A full eventfd has no room, and more of the same changes nothing for who waits for room.
	 */
	efd_add(efd, COUNT_MAX);
	waits_for(ctx, aio_poll(&other, efd, POLLOUT));
	efd_add(efd, 0);
	still_waits(ctx);
	efd_take(efd);
	aio_expect(ctx, &other, POLLOUT);
	assert_int_equal(aio_cancel(ctx, &cb, &(struct io_event){0}), -1);
	aio_expect(ctx, &cb, 0);
	close(efd);

	sockets(s, SOCK_STREAM);
	while (write(s[0], big, sizeof(big)) > 0)
		;
	waits_for(ctx, aio_poll(&cb, s[0], POLLOUT));
	put(s[1]);
	still_waits(ctx);
	while (read(s[1], big, sizeof(big)) > 0)
		;
	aio_expect(ctx, &cb, POLLOUT | POLLWRNORM | POLLWRBAND);
	close_both(s);
	aio_free(ctx);
}

/* --- AIO-POLL-10 ----------------------------------------------------------------------------- */

static void AIO_POLL_10_an_epoll_may_be_polled(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	int p[2], ep = ep_new(), outer = ep_new(), efd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	aio_pipe(p, 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 1));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 2));
	waits_for(ctx, aio_poll(&cb, ep, POLLIN));
	put(p[1]);
	aio_expect(ctx, &cb, POLLIN);
	aio_does(ctx, aio_poll(&cb, ep, POLLIN | POLLRDNORM), POLLIN | POLLRDNORM);
	aio_does(ctx, aio_poll(&cb, outer, POLLIN), POLLIN);
	assert_int_equal(ep_count(ep), 1);
	get(p[0]);
	assert_int_equal(ep_count(ep), 0);
	waits_for(ctx, aio_poll(&cb, outer, POLLIN));
	put(p[1]);
	aio_expect(ctx, &cb, POLLIN);
	get(p[0]);
	assert_int_equal(ep_count(outer), 0);

	/* With an eventfd in it. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 3));
	waits_for(ctx, aio_poll(&cb, ep, POLLIN));
	efd_add(efd, 1);
	aio_expect(ctx, &cb, POLLIN);
	assert_true(ep_one(ep, EPOLLIN, 3));
	efd_take(efd);
	assert_int_equal(ep_count(ep), 0);
	waits_for(ctx, aio_poll(&cb, outer, POLLIN));
	efd_add(efd, 1);
	aio_expect(ctx, &cb, POLLIN);
	close(efd);
	close_both(p);
	close(ep);
	close(outer);
	aio_free(ctx);
}

static void AIO_POLL_10_an_epoll_in_which_an_eventfd_was_ready_before(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	int ep = ep_new(), efd = efd_new(1, EFD_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN | EPOLLET, 3));
	aio_does(ctx, aio_poll(&cb, ep, POLLIN), POLLIN);
	assert_true(ep_one(ep, EPOLLIN, 3));
	/* The edge has been collected. */
	waits_for(ctx, aio_poll(&cb, ep, POLLIN));
	still_waits(ctx);
	efd_add(efd, 1);
	aio_expect(ctx, &cb, POLLIN);
	assert_true(ep_one(ep, EPOLLIN, 3));
	close(efd);
	close(ep);
	aio_free(ctx);
}

static void AIO_POLL_10_newest_first(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct iocb cb[6];
	struct io_event ev[6];
	int fds[3][2];

	(void)state;
	aio_pipe(fds[0], 0);
	sockets(fds[1], SOCK_STREAM);
	fds[2][0] = fds[2][1] = efd_new(0, 0);
	for (int kind = 0; kind < 3; kind++) {
		const uint64_t one = 1;
		size_t n = kind == 2 ? 8 : 1;

		for (int i = 0; i < 6; i++)
			waits_for(ctx, aio_poll(&cb[i], fds[kind][0], POLLIN));
		assert_int_equal(write(fds[kind][1], &one, n), n);
		aio_take(ctx, ev, 6);
		for (int i = 0; i < 6; i++)
			assert_int_equal(ev[i].obj, (uintptr_t)&cb[5 - i]);
	}
	close_both(fds[0]);
	close_both(fds[1]);
	close(fds[2][0]);
	aio_free(ctx);
}

/* --- AIO-POLL-11 ----------------------------------------------------------------------------- */

static void AIO_POLL_11_cancel_and_destroy_end_it(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct iocb cb, more[4];
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	waits_for(ctx, aio_poll(&cb, p[0], POLLIN));
	assert_errno(aio_cancel(ctx, &cb, &(struct io_event){0}), EINPROGRESS);
	aio_expect(ctx, &cb, 0);
	put(p[1]);
	still_waits(ctx);
	get(p[0]);
	for (int i = 0; i < 4; i++)
		waits_for(ctx, aio_poll(&more[i], p[0], POLLIN));
	aio_free(ctx);
	/* The wakes of afterwards find nobody. */
	put(p[1]);
	close_both(p);
}

struct exits {
	int rd;
	int armed;
};

static void exits_with_a_poll(void *arg)
{
	struct exits *e = arg;
	aio_context_t ctx = 0;
	struct iocb cb;

	child_check(aio_setup_in_turn(4, &ctx) == 0);
	child_check(aio_submit1(ctx, aio_poll(&cb, e->rd, POLLIN)) == 1);
	child_check(write(e->armed, "a", 1) == 1);
}

static void AIO_POLL_11_the_end_of_the_process_ends_it(void **state)
{
	int64_t start = now_ms();
	int p[2], armed[2];

	(void)state;
	aio_pipe(p, 0);
	aio_pipe(armed, 0);
	for (int i = 0; i < 5; i++) {
		struct exits e = {.rd = p[0], .armed = armed[1]};

		in_child(exits_with_a_poll, &e);
		get(armed[0]);
	}
	assert_true(now_ms() - start < SOON_MS);
	/* Nothing holds the read end any more. */
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	assert_errno(write(p[1], "x", 1), EPIPE);
	signal(SIGPIPE, SIG_DFL);
	close(p[1]);
	close_both(armed);
}

/* --- AIO-POLL-12 ----------------------------------------------------------------------------- */

struct waker {
	struct test_thread t;
	int fd;
	size_t n;
	uint32_t round;
	uint32_t end;
};

/* One write a round, as close to the submission of the round's poll as it can. */
static void *waker_main(void *arg)
{
	struct waker *w = arg;
	const uint64_t one = 1;
	uint32_t done = 0;

	for (;;) {
		uint32_t round, spins = 0;

		while ((round = __atomic_load_n(&w->round, __ATOMIC_ACQUIRE)) == done) {
			if (__atomic_load_n(&w->end, __ATOMIC_ACQUIRE))
				return NULL;
			if (++spins > 2000)
				sched_yield();
		}
		done = round;
		/* Now a little earlier, now a little later. */
		for (unsigned int i = 0; i < round % 64 * 16; i++)
			__asm__ volatile("" ::: "memory");
		if (write(w->fd, &one, w->n) != (ssize_t)w->n)
			return NULL;
	}
}

static void AIO_POLL_12_a_wake_during_submission_is_not_lost(void **state)
{
	enum { ROUNDS = 1500 };
	aio_context_t ctx = aio_new(4);
	int fds[3][2];

	(void)state;
	aio_pipe(fds[0], 0);
	sockets(fds[1], SOCK_STREAM);
	fds[2][0] = fds[2][1] = efd_new(0, 0);
	for (int kind = 0; kind < 3; kind++) {
		struct waker w = {.fd = fds[kind][1], .n = kind == 2 ? 8 : 1};
		struct iocb cb;

		thread_start(&w.t, waker_main, &w);
		for (int i = 0; i < ROUNDS; i++) {
			struct io_event ev;
			char buf[8];

			aio_poll(&cb, fds[kind][0], POLLIN);
			__atomic_store_n(&w.round, w.round + 1, __ATOMIC_RELEASE);
			aio_accept1(ctx, &cb);
			aio_take(ctx, &ev, 1);
			assert_true(ev.res & POLLIN);
			assert_int_equal(assert_ok(read(fds[kind][0], buf, w.n)), w.n);
		}
		__atomic_store_n(&w.end, 1, __ATOMIC_RELEASE);
		assert_true(thread_join(&w.t, SOON_MS));
		aio_none(ctx);
	}
	close_both(fds[0]);
	close_both(fds[1]);
	close(fds[2][0]);
	aio_free(ctx);
}

static void *duplicates(void *over)
{
	int fd = dup(1);

	while (!__atomic_load_n((int *)over, __ATOMIC_ACQUIRE)) {
		dup2(1, fd);
		usleep(20);
	}
	close(fd);
	return NULL;
}

/* Each context has been used before, and another thread changes descriptors all the time. */
static void AIO_POLL_01_beside_dup2(void **state)
{
	int p[2], over = 0, fd = file_in_memory(8);
	struct test_thread t;
	struct iocb cb;
	char byte;

	(void)state;
	aio_pipe(p, 0);
	thread_start(&t, duplicates, &over);
	for (int i = 0; i < 300; i++) {
		aio_context_t ctx = aio_new(8);

		aio_does(ctx, aio_pread(&cb, fd, &byte, 1, 0), 1);
		aio_accept1(ctx, aio_poll(&cb, p[0], POLLIN));
		aio_free(ctx);
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&t, SOON_MS));
	close_both(p);
	close(fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_POLL_01_the_mask_has_16_bits),
		cmocka_unit_test(AIO_POLL_01_fields_that_must_be_zero),
		cmocka_unit_test(AIO_POLL_01_after_the_descriptors),
		cmocka_unit_test(AIO_POLL_02_hup_and_err_are_always_added),
		cmocka_unit_test(AIO_POLL_03_what_is_ready_completes_at_once),
		cmocka_unit_test(AIO_POLL_03_whatever_the_file_is),
		cmocka_unit_test(AIO_POLL_03_AIO_CQ_02_and_tells),
		cmocka_unit_test(AIO_POLL_03_the_ring_is_the_same),
		cmocka_unit_test(AIO_POLL_03_in_a_batch),
		cmocka_unit_test(AIO_POLL_03_then_one_that_is_not_ready),
		cmocka_unit_test(AIO_POLL_04_one_shot),
		cmocka_unit_test(AIO_POLL_05_files_without_poll_are_always_ready),
		cmocka_unit_test(AIO_POLL_06_a_fifo_for_both_has_two_queues),
		cmocka_unit_test(AIO_POLL_07_the_whole_key_of_the_wake),
		cmocka_unit_test(AIO_POLL_07_eventfds_timers_and_terminals),
		cmocka_unit_test(AIO_POLL_08_a_wake_without_key_looks_again),
		cmocka_unit_test(AIO_POLL_08_and_waits_on_if_nothing_is_ready),
		cmocka_unit_test(AIO_POLL_09_keys_that_miss_the_mask_are_ignored),
		cmocka_unit_test(AIO_POLL_10_an_epoll_may_be_polled),
		cmocka_unit_test(AIO_POLL_10_an_epoll_in_which_an_eventfd_was_ready_before),
		cmocka_unit_test(AIO_POLL_10_newest_first),
		cmocka_unit_test(AIO_POLL_11_cancel_and_destroy_end_it),
		cmocka_unit_test(AIO_POLL_11_the_end_of_the_process_ends_it),
		cmocka_unit_test(AIO_POLL_12_a_wake_during_submission_is_not_lost),
		cmocka_unit_test(AIO_POLL_01_beside_dup2),
	};

	return run_group(tests);
}
