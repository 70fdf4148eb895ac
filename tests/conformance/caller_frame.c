/* SPDX-License-Identifier: MIT */
/*
 * A call with fewer arguments than its function can have does not write where the others would be:
 * the memory there is a variable of the caller, which another thread may be changing.
 *
 * The calls are made with a stack whose memory above the return address is read-only. Each is made
 * in a process of its own, with objects that the drop-in serves.
 */
#include "harness.h"

#include <linux/aio_abi.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define STACK (512 << 10)

/* Calls fn with six arguments, the stack being what is below top. */
long call_below(void *top, void *fn, const long *args);
#if defined(__x86_64__)
__asm__(".text\n"
	".globl call_below\n"
	".type call_below, @function\n"
	"call_below:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset rbp, 0\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register rbp\n"
	"	movq %rdi, %rsp\n"
	"	movq %rsi, %r11\n"
	"	movq %rdx, %r10\n"
	"	movq (%r10), %rdi\n"
	"	movq 8(%r10), %rsi\n"
	"	movq 16(%r10), %rdx\n"
	"	movq 24(%r10), %rcx\n"
	"	movq 32(%r10), %r8\n"
	"	movq 40(%r10), %r9\n"
	"	xorl %eax, %eax\n"
	"	call *%r11\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	".cfi_def_cfa rsp, 8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size call_below, .-call_below\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl call_below\n"
	".type call_below, %function\n"
	"call_below:\n"
	".cfi_startproc\n"
	"	stp x29, x30, [sp, #-16]!\n"
	".cfi_adjust_cfa_offset 16\n"
	".cfi_rel_offset x29, 0\n"
	".cfi_rel_offset x30, 8\n"
	"	mov x29, sp\n"
	".cfi_def_cfa_register x29\n"
	"	mov x9, x1\n"
	"	mov x10, x2\n"
	"	mov sp, x0\n"
	"	ldp x0, x1, [x10]\n"
	"	ldp x2, x3, [x10, #16]\n"
	"	ldp x4, x5, [x10, #32]\n"
	"	blr x9\n"
	"	mov sp, x29\n"
	"	ldp x29, x30, [sp], #16\n"
	".cfi_def_cfa sp, 0\n"
	"	ret\n"
	".cfi_endproc\n"
	".size call_below, .-call_below\n");
#endif

struct call {
	void *fn;
	long args[6];
};

#define CALL(label, function, ...)                                                                 \
	{                                                                                          \
		.name = (label), .call = {(void *)(function), {__VA_ARGS__} }                      \
	}
#define RAW(nr, ...) CALL(#nr, syscall, nr, __VA_ARGS__)

static uint64_t value = 1;
static struct epoll_event events[4];
static aio_context_t context;
static char *const no_words[] = {NULL};
static struct rlimit limit;

/* The eventfd and the epoll that each process makes first. */
#define EFD 100
#define EP 101

static int clone_child(void *p)
{
	(void)p;
	_exit(0);
}

static char clone_stack[65536] __attribute__((aligned(16)));

static const struct named {
	const char *name;
	struct call call;
	/* It returns 0 in a child, which ends. */
	bool forks;
} calls[] = {
	RAW(SYS_gettid, 0),
	RAW(SYS_getppid, 0),
	RAW(SYS_write, EFD, (long)&value, 8),
	RAW(SYS_read, EFD, (long)&value, 8),
	RAW(SYS_epoll_pwait, EP, (long)events, 4, 0, 0),
	RAW(SYS_ppoll, 0, 0, (long)&(struct timespec){0}, 0, 8),
	RAW(SYS_eventfd2, 0, 0),
	RAW(SYS_epoll_create1, 0),
	RAW(SYS_epoll_ctl, EP, EPOLL_CTL_DEL, EFD, 0),
	RAW(SYS_timerfd_create, CLOCK_MONOTONIC, 0),
	RAW(SYS_dup, EFD),
	RAW(SYS_dup3, EFD, 102, 0),
	RAW(SYS_fcntl, EFD, F_GETFL, 0),
	RAW(SYS_ioctl, EFD, FIONREAD, (long)&value),
	RAW(SYS_close, EFD),
	RAW(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDONLY),
	RAW(SYS_getrandom, (long)&value, 8, 0),
	RAW(SYS_prctl, PR_GET_DUMPABLE),
	RAW(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&limit),
	RAW(SYS_io_setup, 8, (long)&context),
	RAW(SYS_io_getevents, 0, 0, 0, 0, 0),
	RAW(SYS_io_uring_setup, 0, 0),
	RAW(SYS_mremap, 0, 0, 0, 0, 0),
	RAW(SYS_membarrier, 0, 0, 0),
	RAW(SYS_execve, (long)"/nonexistent", (long)no_words, (long)no_words),
	RAW(SYS_execveat, -1, (long)"nonexistent", (long)no_words, (long)no_words, 0),
#ifdef SYS_fork
	{"SYS_fork", {(void *)syscall, {SYS_fork}}, true},
#endif
	{"SYS_clone", {(void *)syscall, {SYS_clone, SIGCHLD}}, true},
	CALL("clone", clone, (long)clone_child, (long)(clone_stack + sizeof(clone_stack)), SIGCHLD),
	CALL("open", open, (long)"/dev/null", O_RDONLY),
	CALL("openat", openat, AT_FDCWD, (long)"/dev/null", O_RDONLY),
	CALL("fcntl", fcntl, EFD, F_GETFL),
	CALL("ioctl", ioctl, EFD, FIONREAD, (long)&value),
	CALL("prctl", prctl, PR_GET_DUMPABLE),
	CALL("mremap", mremap, 0, 0, 0, 0),
	CALL("execl", execl, (long)"/nonexistent", (long)"a", 0),
	CALL("splice", splice, -1, 0, -1, 0, 0, 0),
};

static void child(const struct named *n, char *top)
{
	struct epoll_event ev = {.events = EPOLLIN};
	long r;

	/* cmocka's handler would go on with the test. */
	signal(SIGSEGV, SIG_DFL);
	if (dup2(eventfd(0, 0), EFD) < 0 || dup2(epoll_create1(0), EP) < 0 ||
	    epoll_ctl(EP, EPOLL_CTL_ADD, EFD, &ev))
		_exit(2);
	/* A read of it must not wait. */
	if (write(EFD, &value, 8) != 8)
		_exit(3);
	for (int i = 0; i < 2; i++) {
		r = call_below(top, n->call.fn, n->call.args);
		if (n->forks && r == 0)
			_exit(0);
		if (n->call.args[0] == SYS_read && write(EFD, &value, 8) != 8)
			_exit(4);
	}
	_exit(0);
}

static void calls_leave_the_frame_of_their_caller_alone(void **state)
{
	char *p = mmap(NULL, STACK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	int failed = 0;

	(void)state;
	assert_true(p != MAP_FAILED);
	assert_ok(mprotect(p + STACK, 4096, PROT_READ));
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		pid_t pid = fork();
		int status;

		assert_true(pid >= 0);
		if (pid == 0)
			child(&calls[i], p + STACK);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status) {
			print_error("%s: status %#x\n", calls[i].name, (unsigned int)status);
			failed++;
		}
	}
	munmap(p, STACK + 4096);
	assert_int_equal(failed, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_leave_the_frame_of_their_caller_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
