/* SPDX-License-Identifier: MIT */
/*
 * Who is kept by a file that takes its time: the submitter, and nobody else. Seen by what the
 * threads do, not by how long it takes: the file does not go on until the test lets it.
 */
#include "aio.h"

#include <linux/fs.h>
#include <sched.h>
#include <sys/mount.h>

/* A thread that submits one request. */
struct submitter {
	struct test_thread t;
	aio_context_t ctx;
	struct iocb cb;
	long n;
};

static void *submitter_main(void *arg)
{
	struct submitter *s = arg;

	s->n = aio_submit1(s->ctx, &s->cb);
	return NULL;
}

/* The thread sleeps, in whatever way. */
static bool is_stuck(struct submitter *s)
{
	int64_t end = now_ms() + SOON_MS;
	unsigned long sleeps;
	char state;

	do
		state = task_state(OF_THREAD, s->t.tid, &sleeps);
	while (state != 'D' && state != 'S' && now_ms() < end && !thread_done(&s->t));
	sleep_ms(QUIET_MS);
	return !thread_done(&s->t);
}

/* Something else goes on as ever: of this context, and of another. */
static bool others_go_on(aio_context_t ctx)
{
	struct timespec soon = {.tv_sec = SOON_MS / 1000};
	aio_context_t own = 0;
	struct io_event ev = {0};
	struct iocb cb;
	char buf[8];
	int fd = (int)syscall(SYS_memfd_create, "aio", 1u);
	bool good;

	good = write(fd, "12345678", 8) == 8 && aio_setup_in_turn(4, &own) == 0;
	good = good && aio_submit1(own, aio_pread(&cb, fd, buf, 8, 0)) == 1 &&
	       aio_getevents(own, 1, 1, &ev, &soon) == 1 && ev.res == 8;
	good = good && aio_submit1(ctx, aio_pread(&cb, fd, buf, 8, 4)) == 1 &&
	       aio_getevents(ctx, 1, 1, &ev, &soon) == 1 && ev.res == 4 && ev.obj == (uintptr_t)&cb;
	close(fd);
	return aio_destroy(own) == 0 && good;
}

/* --- memory that is not there yet --------------------------------------------------------------
 */

static void late_buffer(unsigned int opcode, int fd, size_t n)
{
	struct submitter *s = calloc(1, sizeof(*s));
	struct trap t = {.uffd = -1};

	assert_non_null(s);
	if (!trap_new(&t, 0)) {
		free(s);
		SKIP("no userfaultfd for this user");
	}
	s->ctx = aio_new(8);
	aio_prep(&s->cb, opcode, fd, t.base + t.page, n, 0);
	thread_start(&s->t, submitter_main, s);
	trap_wait(&t);
	assert_true(is_stuck(s));
	assert_true(others_go_on(s->ctx));
	assert_true(!thread_done(&s->t));
	trap_open(&t);
	assert_true(thread_join(&s->t, SOON_MS));
	assert_int_equal(s->n, 1);
	aio_expect(s->ctx, &s->cb, (int64_t)n);
	if (opcode == IOCB_CMD_PREAD)
		assert_true(file_matches(t.base + t.page, n, 0));
	aio_free(s->ctx);
	trap_free(&t);
	free(s);
}

static void AIO_SUBMIT_12_a_read_to_memory_that_is_late(void **state)
{
	int fd = file_in_memory(8), disk = file_on_disk(8, 0);

	(void)state;
	late_buffer(IOCB_CMD_PREAD, fd, 8);
	late_buffer(IOCB_CMD_PREAD, disk, 8);
	close(fd);
	close(disk);
}

static void AIO_SUBMIT_12_a_write_of_memory_that_is_late(void **state)
{
	int fd = file_in_memory(8), disk = file_on_disk(8, 0);

	(void)state;
	late_buffer(IOCB_CMD_PWRITE, fd, 8);
	late_buffer(IOCB_CMD_PWRITE, disk, 8);
	close(fd);
	close(disk);
}

static void AIO_SUBMIT_12_a_direct_read_to_memory_that_is_late(void **state)
{
	int fd = file_on_disk(2 * AIO_PAGE, O_DIRECT);

	(void)state;
	if (fd == -1)
		SKIP("no O_DIRECT on this file system");
	late_buffer(IOCB_CMD_PREAD, fd, AIO_PAGE);
	close(fd);
}

/* --- events to memory that is not there yet ------------------------------------------------- */

/* A thread that takes events. */
struct taker {
	struct test_thread t;
	aio_context_t ctx;
	struct io_event *ev;
	long n;
};

static void *taker_main(void *arg)
{
	struct taker *s = arg;
	struct timespec soon = {.tv_sec = SOON_MS / 1000};

	s->n = aio_getevents(s->ctx, 2, 2, s->ev, &soon);
	return NULL;
}

/* All that does not take from the same context: submission, ends of other objects, forks. */
static void others_go_on_meanwhile(aio_context_t ctx, struct iocb *cb)
{
	pid_t pid;

	aio_accept1(ctx, cb);
	/* More than a thread keeps before it releases what it has closed. */
	for (int i = 0; i < 1000; i++) {
		int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC)),
		    efd = efd_new(0, EFD_NONBLOCK);

		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 0), 0);
		close(efd);
		close(ep);
	}
	pid = fork_bounded();
	if (pid == 0)
		_exit(0);
	assert_int_equal(child_end(pid), 0);
}

/* there: how many are there when the call begins; before: how many fit before the late page. */
static void late_events(int there, size_t before)
{
	int fd = file_in_memory(8);
	struct taker s = {0};
	struct trap t = {.uffd = -1};
	struct iocb cb[3];
	char buf[8];

	if (!trap_new(&t, 0))
		SKIP("no userfaultfd for this user");
	s.ctx = aio_new(8);
	s.ev = (void *)(t.base + t.page - before * sizeof(*s.ev));
	for (int i = 0; i < 3; i++)
		aio_pread(&cb[i], fd, buf, 8, 0);
	for (int i = 0; i < there; i++)
		aio_accept1(s.ctx, &cb[i]);
	thread_start(&s.t, taker_main, &s);
	if (there < 2) {
		assert_true(before > 0 || there == 0);
		assert_true(thread_asleep(&s.t));
	}
	for (int i = there; i < 2; i++)
		aio_accept1(s.ctx, &cb[i]);
	trap_wait(&t);
	others_go_on_meanwhile(s.ctx, &cb[2]);
	assert_false(thread_done(&s.t));
	trap_open(&t);
	assert_true(thread_join(&s.t, SOON_MS));
	assert_int_equal(s.n, 2);
	for (int i = 0; i < 2; i++)
		assert_true(s.ev[i].obj == (uintptr_t)&cb[i] && s.ev[i].res == 8);
	aio_expect(s.ctx, &cb[2], 8);
	aio_free(s.ctx);
	trap_free(&t);
	close(fd);
}

static void AIO_GET_08_events_to_memory_that_is_late(void **state)
{
	(void)state;
	late_events(2, 0);
	late_events(2, 1);
	late_events(0, 0);
	late_events(1, 1);
}

/* The memory is there, and may be written to when another thread says so. */
static void AIO_GET_08_events_to_memory_that_is_protected(void **state)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
	struct uffdio_register reg = {.range.len = AIO_PAGE, .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect protect = {.range.len = AIO_PAGE,
					      .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	int fd = file_in_memory(8);
	struct taker s = {0};
	struct iocb cb[2];
	char byte;

	(void)state;
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		SKIP("no userfaultfd for this user");
	s.ctx = aio_new(8);
	s.ev = mmap(NULL, AIO_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(s.ev != MAP_FAILED);
	s.ev[0].obj = 1;
	protect.range.start = reg.range.start = (uintptr_t)s.ev;
	if (ioctl(uffd, UFFDIO_REGISTER, &reg) || ioctl(uffd, UFFDIO_WRITEPROTECT, &protect))
		SKIP("memory cannot be protected so");
	aio_accept1(s.ctx, aio_pread(&cb[0], fd, &byte, 1, 0));
	aio_accept1(s.ctx, aio_pread(&cb[1], fd, &byte, 1, 0));
	thread_start(&s.t, taker_main, &s);
	trap_wait(&(struct trap){.uffd = uffd});
	others_go_on_meanwhile(s.ctx, &cb[0]);
	protect.mode = 0;
	assert_ok(ioctl(uffd, UFFDIO_WRITEPROTECT, &protect));
	assert_true(thread_join(&s.t, SOON_MS));
	assert_int_equal(s.n, 2);
	munmap(s.ev, AIO_PAGE);
	close(uffd);
	close(fd);
	aio_free(s.ctx);
}

/* --- a file system that is frozen ------------------------------------------------------------- */

#define UNABLE 77

static int frozen = -1;

/* It must not be left frozen, whatever happens. */
static void thaw(int sig)
{
	if (frozen >= 0)
		ioctl(frozen, FITHAW, 0);
	if (sig)
		_exit(98);
}

/* In a child, which goes into a folder of its own: an empty file system, mounted on fs. */
static void make_file_system(char *path, size_t size)
{
	const char *dir = getenv("TMPDIR");

	if (unshare(CLONE_NEWNS) == -1 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1)
		_exit(UNABLE);
	snprintf(path, size, "%s/pollux-aio-XXXXXX", dir != NULL ? dir : "/tmp");
	child_check(mkdtemp(path) != NULL && chdir(path) == 0);
	if (system("exec >/dev/null 2>&1; truncate -s 16M image && mkfs.ext4 -q -F image && "
		   "mkdir fs && mount -o loop image fs") == 0)
		return;
	child_check(system("rm -rf image fs") == 0 && chdir("/") == 0 && rmdir(path) == 0);
	_exit(UNABLE);
}

static void remove_file_system(const char *path)
{
	child_check(umount("fs") == 0 && rmdir("fs") == 0 && unlink("image") == 0);
	child_check(chdir("/") == 0 && rmdir(path) == 0);
}

static void frozen_write(void)
{
	struct submitter s = {0};
	struct timespec none = {0}, soon = {.tv_sec = SOON_MS / 1000};
	struct io_event ev = {0};
	char path[4096], data[8];
	bool kept, went_on, early = false;
	int fd;

	signal(SIGALRM, thaw);
	make_file_system(path, sizeof(path));
	fd = open("fs/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	frozen = open("fs", O_RDONLY | O_CLOEXEC);
	child_check(fd >= 0 && frozen >= 0 && aio_setup_in_turn(8, &s.ctx) == 0);
	aio_pwrite(&s.cb, fd, "frozen", 6, 0);
	child_check(ioctl(frozen, FIFREEZE, 0) == 0);
	/* From here on nothing may end the process but after the thaw. */
	thread_start(&s.t, submitter_main, &s);
	kept = is_stuck(&s);
	if (!kept)
		early = aio_getevents(s.ctx, 0, 1, &ev, &none) != 0;
	went_on = others_go_on(s.ctx);
	thaw(0);
	child_check(kept);
	child_check(!early);
	child_check(went_on);
	child_check(thread_join(&s.t, SOON_MS));
	child_check(s.n == 1);
	child_check(aio_getevents(s.ctx, 1, 1, &ev, &soon) == 1);
	child_check(ev.res == 6 && ev.obj == (uintptr_t)&s.cb);
	child_check(pread(fd, data, 7, 0) == 6 && memcmp(data, "frozen", 6) == 0);
	child_check(aio_destroy(s.ctx) == 0);
	close(fd);
	close(frozen);
	remove_file_system(path);
}

static void AIO_SUBMIT_12_a_write_to_a_frozen_file_system(void **state)
{
	pid_t pid;
	int end;

	(void)state;
	/* A sanitized drop-in cannot be loaded into the shell, which is not sanitized. */
	if (SANITIZED && under_pollux())
		SKIP("the shell that makes the file system is not built with a sanitizer");
	if (SANITIZED == 2)
		SKIP("the thread sanitizer takes a thread of the child for one of the parent");
	if (geteuid() != 0)
		SKIP("only root may mount and freeze a file system");
	pid = fork_bounded();
	if (pid == 0) {
		frozen_write();
		_exit(0);
	}
	assert_true(pid > 0);
	end = child_end(pid);
	if (end == UNABLE)
		SKIP("no ext4 on a loop device can be made and mounted here");
	assert_int_equal(end, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_SUBMIT_12_a_read_to_memory_that_is_late),
		cmocka_unit_test(AIO_SUBMIT_12_a_write_of_memory_that_is_late),
		cmocka_unit_test(AIO_SUBMIT_12_a_direct_read_to_memory_that_is_late),
		cmocka_unit_test(AIO_GET_08_events_to_memory_that_is_late),
		cmocka_unit_test(AIO_GET_08_events_to_memory_that_is_protected),
		cmocka_unit_test(AIO_SUBMIT_12_a_write_to_a_frozen_file_system),
	};

	return run_group(tests);
}
