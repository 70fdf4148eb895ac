/* SPDX-License-Identifier: MIT */
/*
 * An eventfd that is full stays as it is while it is written to often: writes are refused, its
 * count stays, and nobody who waits for room is woken.
 */
#include "hot.h"

#include <poll.h>

/* The largest that a write leaves, and a completion of AIO. */
#define FULL (UINT64_MAX - 1)

/* Another one is hot: what is written to often may be adopted at once. */
static void prepare(void)
{
	int ep, fd;

	one_is_hot(&ep, &fd);
	close(fd);
	close(ep);
}

static void assert_refuses(int fd)
{
	const uint64_t one = 1;

	for (int i = 0; i < OFTEN; i++)
		assert_errno(write(fd, &one, sizeof(one)), EAGAIN);
}

static void EFD_10_full_by_a_write(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	prepare();
	efd_add(fd, FULL);
	assert_refuses(fd);
	assert_int_equal(efd_take(fd), FULL);
	close(fd);
}

static void EFD_15_full_by_a_completion(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), file = memfd_create("full", MFD_CLOEXEC);
	char byte;
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD,
			  .aio_flags = IOCB_FLAG_RESFD,
			  .aio_resfd = (uint32_t)fd,
			  .aio_fildes = (uint32_t)file,
			  .aio_buf = (uintptr_t)&byte,
			  .aio_nbytes = 1},
		    *list[1] = {&cb};
	struct io_event done;
	aio_context_t ctx = 0;

	(void)state;
	prepare();
	efd_add(fd, FULL);
	assert_ok(syscall(SYS_io_setup, 1, &ctx));
	assert_int_equal(syscall(SYS_io_submit, ctx, 1L, list), 1);
	assert_int_equal(syscall(SYS_io_getevents, ctx, 1L, 1L, &done, NULL), 1);
	assert_refuses(fd);
	assert_int_equal(efd_take(fd), UINT64_MAX);
	assert_ok(syscall(SYS_io_destroy, ctx));
	close(file);
	close(fd);
}

static void *waits_for_room(void *fd)
{
	struct pollfd p = {.fd = *(int *)fd, .events = POLLOUT};

	return poll(&p, 1, 10000) == 1 ? fd : NULL;
}

static void EFD_13_who_waits_for_room(void **state)
{
	struct test_thread t;

	(void)state;
	prepare();
	for (int i = 0; i < 20; i++) {
		int fd = efd_new(0, EFD_NONBLOCK);

		efd_add(fd, FULL);
		thread_start(&t, waits_for_room, &fd);
		assert_true(thread_asleep(&t));
		assert_refuses(fd);
		usleep(1000);
		assert_false(thread_done(&t));
		assert_int_equal(efd_take(fd), FULL);
		assert_true(thread_join(&t, 5000));
		assert_non_null(t.ret);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest adopted_full[] = {
		cmocka_unit_test(EFD_10_full_by_a_write),
		cmocka_unit_test(EFD_15_full_by_a_completion),
		cmocka_unit_test(EFD_13_who_waits_for_room),
	};

	return run_group(adopted_full);
}
