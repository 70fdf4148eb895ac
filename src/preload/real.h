/* SPDX-License-Identifier: MIT */
/*
 * The functions that ours stand in front of: what dlsym(RTLD_NEXT) finds.
 *
 * Every pointer is valid at any time. It starts as a stub that looks the function up, puts it
 * in its own place and jumps to it, so there is no test on the path of later calls, and no frame
 * of ours on that of the first. A function that this C library lacks fails with ENOSYS, unless
 * another has been loaded that has it.
 */
#pragma once

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fts.h>
#include <mntent.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <wordexp.h>

/* Not in all headers of C libraries. */
int __open_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
		size_t room);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
		      void *object);
pid_t _Fork(void);
int close_range(unsigned int first, unsigned int last, int flags);
void closefrom(int low);
int pidfd_getfd(int pidfd, int fd, unsigned int flags);
int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags);
int epoll_pwait2(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
		 const sigset_t *mask);
void __asan_handle_no_return(void);
int pidfd_spawn(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
		char *const[], char *const[]);
int pidfd_spawnp(int *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
		 char *const[], char *const[]);

/* clang-format off */
/* What the library for programs that only start others needs as well. */
#define PLX_REAL_EXEC(X)                                                                           \
	X(fork) X(execve) X(execvpe) X(fexecve) X(execveat)                                        \
	X(posix_spawn) X(posix_spawnp) X(pidfd_spawn) X(pidfd_spawnp) X(prctl)

/* Of the run-time that our own build needs; preload/sanitizer.c. */
#ifdef __SANITIZE_ADDRESS__
#define PLX_REAL_ASAN(X) X(__asan_handle_no_return)
#else
#define PLX_REAL_ASAN(X)
#endif

#ifdef PLX_STARTER
#define PLX_REALS(X) PLX_REAL_EXEC(X)
#else
#define PLX_REALS(X)                                                                               \
	PLX_REAL_EXEC(X) PLX_REAL_ASAN(X)                                                          \
	X(read) X(write) X(readv) X(writev) X(preadv2) X(pwritev2) X(__read_chk)                   \
	X(eventfd) X(eventfd_read) X(eventfd_write)                                                \
	X(timerfd_create) X(timerfd_settime) X(timerfd_gettime)                                    \
	X(epoll_create) X(epoll_create1) X(epoll_ctl)                                              \
	X(epoll_wait) X(epoll_pwait) X(epoll_pwait2)                                               \
	X(poll) X(ppoll) X(__poll_chk) X(__ppoll_chk) X(select) X(pselect)                         \
	X(close) X(close_range) X(closefrom) X(dup) X(dup2) X(dup3) X(pipe2)                       \
	X(fcntl) X(ioctl) X(pidfd_getfd)                                                           \
	X(open) X(openat) X(__open_2) X(__openat_2) X(opendir) X(closedir)                         \
	X(fopen) X(fdopen) X(freopen) X(fclose) X(vdprintf) X(__vdprintf_chk)                      \
	X(endmntent) X(fts_close) X(mq_close) X(aio_read) X(aio_write) X(lio_listio)               \
	X(socket) X(socketpair) X(accept) X(accept4) X(sendmsg) X(sendmmsg)                        \
	X(_Fork) X(vfork) X(clone) X(unshare) X(setns) X(__register_atfork)                                 \
	X(system) X(popen) X(pclose) X(wordexp)                                                    \
	X(posix_spawn_file_actions_adddup2) X(posix_spawn_file_actions_addopen)                    \
	X(dlopen) X(dlmopen)                                                                       \
	X(sigaction) X(mmap) X(munmap) X(mremap) X(_exit) X(syscall)                                                 \
	X(pthread_create) X(pthread_cancel) X(pthread_setcanceltype)
#endif
/* clang-format on */

struct plx_real {
#define PLX_REAL_FIELD(name) __typeof__(name) *name;
	PLX_REALS(PLX_REAL_FIELD)
#undef PLX_REAL_FIELD
};

extern __attribute__((visibility("hidden"))) struct plx_real plx_real;

/*
 * The code of a name whose caller may return twice, or have memory of its own where a seventh
 * argument would be: the function gets the address of the arguments, as plx_jump puts them by, and
 * returns where to go on, by a jump and with the stack as it was, or NULL and the result.
 */
struct plx_outcome {
	void *next;
	long result;
};
/*
 * The arguments, as they are put by, with syscall's names. A call that returns twice, or on another
 * stack, must find no frame of ours: so those of the kernel's are made by a jump.
 */
struct plx_args {
#if defined(__x86_64__)
	long unused, e, d, c, b, a, nr, caller, f;
#else
	long frame[2], nr, a, b, c, d, e, f, unused;
#endif
};
/* clang-format off */
#if defined(__x86_64__)
#define PLX_ENTER(function)                                                                        \
	"	endbr64\n"                                                                         \
	"	leaq " #function "(%rip), %r11\n"                                                  \
	"	jmp plx_jump\n"
#else
#define PLX_ENTER(function)                                                                        \
	"	hint #34\n"                                                                        \
	"	adrp x17, " #function "\n"                                                         \
	"	add x17, x17, :lo12:" #function "\n"                                               \
	"	b plx_jump\n"
#endif
#define PLX_ENTRY(name, function)                                                                  \
	__asm__(".pushsection .text\n"                                                             \
		".globl " #name "\n"                                                               \
		".type " #name ", %function\n"                                                     \
		#name ":\n"                                                                        \
		".cfi_startproc\n"                                                                 \
		PLX_ENTER(function)                                                                \
		".cfi_endproc\n"                                                                   \
		".size " #name ", .-" #name "\n"                                                   \
		".popsection\n")
/* clang-format on */

/* In our constructor: where they are to be found. The path by which the loader has loaded us. */
const char *plx_real_learn(void);
/* Looks up all; harmless when two threads do it at the same time. */
void plx_real_init(void);
struct link_map;
/*
 * The first of all objects, and the last of those that were loaded at the start of the program,
 * which stay, and so do their places in the list. NULL before our constructor.
 */
struct link_map *plx_real_objects(struct link_map **last);
/* A function of a library that may have been loaded later than we; NULL: there is none. */
void *plx_real_anywhere(const char *name);
