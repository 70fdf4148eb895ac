/* SPDX-License-Identifier: MIT */
/*
 * The functions that ours stand in front of: what dlsym(RTLD_NEXT) finds.
 *
 * Every pointer is valid at any time. It starts as a stub that looks the function up, puts it
 * in its own place and calls it, so there is no test on the path of later calls. A function
 * that this C library lacks fails with ENOSYS, unless another has been loaded that has it.
 *
 * Functions with optional arguments are listed with all they can have; the calling
 * conventions of x86-64 and aarch64 pass integers and pointers to both kinds alike.
 */
#ifndef PLX_PRELOAD_REAL_H
#define PLX_PRELOAD_REAL_H

#include <aio.h>
#include <dirent.h>
#include <fts.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <wordexp.h>

/* X(result, name, parameters, arguments) */
#define PLX_REAL_IO(X)                                                                             \
	X(ssize_t, read, (int fd, void *b, size_t n), (fd, b, n))                                  \
	X(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n))                           \
	X(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))                      \
	X(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))                     \
	X(ssize_t, preadv2, (int fd, const struct iovec *v, int n, off_t o, int f),                \
	  (fd, v, n, o, f))                                                                        \
	X(ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t o, int f),               \
	  (fd, v, n, o, f))                                                                        \
	X(ssize_t, __read_chk, (int fd, void *b, size_t n, size_t room), (fd, b, n, room))         \
	X(int, eventfd, (unsigned int init, int f), (init, f))                                     \
	X(int, timerfd_create, (int clock, int f), (clock, f))                                     \
	X(int, timerfd_settime, (int fd, int f, const struct itimerspec *v, struct itimerspec *o), \
	  (fd, f, v, o))                                                                           \
	X(int, timerfd_gettime, (int fd, struct itimerspec *v), (fd, v))                           \
	X(int, eventfd_read, (int fd, eventfd_t *v), (fd, v))                                      \
	X(int, eventfd_write, (int fd, eventfd_t v), (fd, v))                                      \
	X(int, pipe2, (int *p, int f), (p, f))                                                     \
	X(int, aio_read, (struct aiocb * cb), (cb))                                                \
	X(int, aio_write, (struct aiocb * cb), (cb))                                               \
	X(int, lio_listio, (int mode, struct aiocb *const *l, int n, struct sigevent *s),          \
	  (mode, l, n, s))                                                                         \
	X(int, socket, (int domain, int type, int protocol), (domain, type, protocol))             \
	X(int, socketpair, (int domain, int type, int protocol, int fds[2]),                       \
	  (domain, type, protocol, fds))                                                           \
	X(int, accept, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))                     \
	X(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))          \
	X(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f))                   \
	X(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned int n, int f), (fd, m, n, f))

#define PLX_REAL_WAIT(X)                                                                           \
	X(int, epoll_create, (int size), (size))                                                   \
	X(int, epoll_create1, (int f), (f))                                                        \
	X(int, epoll_ctl, (int e, int op, int fd, struct epoll_event *ev), (e, op, fd, ev))        \
	X(int, epoll_wait, (int e, struct epoll_event *ev, int n, int t), (e, ev, n, t))           \
	X(int, epoll_pwait, (int e, struct epoll_event *ev, int n, int t, const sigset_t *m),      \
	  (e, ev, n, t, m))                                                                        \
	X(int, epoll_pwait2,                                                                       \
	  (int e, struct epoll_event *ev, int n, const struct timespec *t, const sigset_t *m),     \
	  (e, ev, n, t, m))                                                                        \
	X(int, poll, (struct pollfd * p, nfds_t n, int t), (p, n, t))                              \
	X(int, ppoll, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *m),  \
	  (p, n, t, m))                                                                            \
	X(int, __poll_chk, (struct pollfd * p, nfds_t n, int t, size_t room), (p, n, t, room))     \
	X(int, __ppoll_chk,                                                                        \
	  (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *m, size_t room), \
	  (p, n, t, m, room))                                                                      \
	X(int, select, (int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t),                \
	  (n, r, w, e, t))                                                                         \
	X(int, pselect,                                                                            \
	  (int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *t, const sigset_t *m),   \
	  (n, r, w, e, t, m))

#define PLX_REAL_FD(X)                                                                             \
	X(int, close, (int fd), (fd))                                                              \
	X(int, close_range, (unsigned int a, unsigned int b, int f), (a, b, f))                    \
	X(void, closefrom, (int low), (low))                                                       \
	X(int, dup, (int fd), (fd))                                                                \
	X(int, dup2, (int a, int b), (a, b))                                                       \
	X(int, dup3, (int a, int b, int f), (a, b, f))                                             \
	X(int, fcntl, (int fd, int cmd, long arg), (fd, cmd, arg))                                 \
	X(int, ioctl, (int fd, unsigned long req, void *arg), (fd, req, arg))                      \
	X(int, pidfd_getfd, (int p, int fd, unsigned int f), (p, fd, f))                           \
	X(int, open, (const char *p, int f, unsigned int m), (p, f, m))                            \
	X(int, openat, (int d, const char *p, int f, unsigned int m), (d, p, f, m))                \
	X(int, __open_2, (const char *p, int f), (p, f))                                           \
	X(int, __openat_2, (int d, const char *p, int f), (d, p, f))                               \
	X(FILE *, fopen, (const char *p, const char *m), (p, m))                                   \
	X(FILE *, fdopen, (int fd, const char *m), (fd, m))                                        \
	X(FILE *, freopen, (const char *p, const char *m, FILE *f), (p, m, f))                     \
	X(int, fclose, (FILE * f), (f))                                                            \
	X(int, vdprintf, (int fd, const char *fmt, va_list ap), (fd, fmt, ap))                     \
	X(int, __vdprintf_chk, (int fd, int flag, const char *fmt, va_list ap),                    \
	  (fd, flag, fmt, ap))                                                                     \
	X(void *, opendir, (const char *p), (p))                                                   \
	X(int, closedir, (DIR * d), (d))                                                           \
	X(int, endmntent, (FILE * f), (f))                                                         \
	X(int, fts_close, (FTS * f), (f))                                                          \
	X(int, mq_close, (mqd_t q), (q))

/* Called by each start of a program. */
#define PLX_REAL_START(X)                                                                          \
	X(int, __register_atfork, (void (*a)(void), void (*b)(void), void (*c)(void), void *dso),  \
	  (a, b, c, dso))

#define PLX_REAL_SPAWN(X, name)                                                                    \
	X(int, name,                                                                               \
	  (int *pid, const char *p, const posix_spawn_file_actions_t *a,                           \
	   const posix_spawnattr_t *t, char *const *v, char *const *e),                            \
	  (pid, p, a, t, v, e))

/* What the library for programs that only start others needs as well. */
#define PLX_REAL_EXEC(X)                                                                           \
	X(pid_t, fork, (void), ())                                                                 \
	X(int, execve, (const char *p, char *const *v, char *const *e), (p, v, e))                 \
	X(int, execvpe, (const char *p, char *const *v, char *const *e), (p, v, e))                \
	X(int, fexecve, (int fd, char *const *v, char *const *e), (fd, v, e))                      \
	X(int, execveat, (int d, const char *p, char *const *v, char *const *e, int f),            \
	  (d, p, v, e, f))                                                                         \
	PLX_REAL_SPAWN(X, posix_spawn)                                                             \
	PLX_REAL_SPAWN(X, posix_spawnp)                                                            \
	PLX_REAL_SPAWN(X, pidfd_spawn)                                                             \
	PLX_REAL_SPAWN(X, pidfd_spawnp)                                                            \
	X(int, prctl, (int op, long a, long b, long c, long d), (op, a, b, c, d))

#define PLX_REAL_PROCESS(X)                                                                        \
	X(pid_t, _Fork, (void), ())                                                                \
	X(pid_t, vfork, (void), ())                                                                \
	X(int, clone, (int (*fn)(void *), void *st, int f, void *arg, void *a, void *b, void *c),  \
	  (fn, st, f, arg, a, b, c))                                                               \
	X(int, unshare, (int f), (f))                                                              \
	X(int, system, (const char *cmd), (cmd))                                                   \
	X(FILE *, popen, (const char *cmd, const char *m), (cmd, m))                               \
	X(int, pclose, (FILE * f), (f))                                                            \
	X(int, wordexp, (const char *s, wordexp_t *w, int f), (s, w, f))                           \
	X(int, sigaction, (int sig, const struct sigaction *act, struct sigaction *old),           \
	  (sig, act, old))                                                                         \
	X(sighandler_t, signal, (int sig, sighandler_t h), (sig, h))                               \
	X(sighandler_t, sysv_signal, (int sig, sighandler_t h), (sig, h))                          \
	X(sighandler_t, sigset, (int sig, sighandler_t h), (sig, h))                               \
	X(int, sigignore, (int sig), (sig))                                                        \
	X(int, siginterrupt, (int sig, int on), (sig, on))                                         \
	X(void *, mmap, (void *at, size_t n, int prot, int f, int fd, off_t o),                    \
	  (at, n, prot, f, fd, o))                                                                 \
	X(void *, mremap, (void *old, size_t was, size_t n, int f, void *to),                      \
	  (old, was, n, f, to))                                                                    \
	X(void, _exit, (int status), (status))                                                     \
	X(int, pthread_create,                                                                     \
	  (pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *arg),                \
	  (t, a, fn, arg))                                                                         \
	X(int, pthread_cancel, (pthread_t t), (t))                                                 \
	X(int, pthread_setcanceltype, (int type, int *old), (type, old))                           \
	X(long, syscall, (long nr, long a, long b, long c, long d, long e, long f),                \
	  (nr, a, b, c, d, e, f))

#ifdef PLX_STARTER
#define PLX_REALS(X) PLX_REAL_EXEC(X)
#else
#define PLX_REALS(X)                                                                               \
	PLX_REAL_IO(X)                                                                             \
	PLX_REAL_WAIT(X)                                                                           \
	PLX_REAL_FD(X)                                                                             \
	PLX_REAL_EXEC(X)                                                                           \
	PLX_REAL_PROCESS(X)                                                                        \
	PLX_REAL_START(X)
#endif

struct plx_real {
#define PLX_REAL_FIELD(ret, name, params, args) ret(*name) params;
	PLX_REALS(PLX_REAL_FIELD)
#undef PLX_REAL_FIELD
};

extern __attribute__((visibility("hidden"))) struct plx_real plx_real;

/* In our constructor: where they are to be found. The path by which the loader has loaded us. */
const char *plx_real_learn(void);
struct link_map;
/*
 * The first of all objects, and the last of those that were loaded at the start of the program,
 * which stay, and so do their places in the list. NULL before our constructor.
 */
struct link_map *plx_real_objects(struct link_map **last);
/* Looks up what has not been; harmless when two threads do it at the same time. */
void plx_real_init(void);
/* The real vfork, which no stub can call for somebody: it returns twice into its caller. */
void *plx_real_vfork(void);
/* The same for syscall. */
void *plx_real_syscall(void);
/* A function of a library that may have been loaded later than we; NULL: there is none. */
void *plx_real_anywhere(const char *name);

#endif
