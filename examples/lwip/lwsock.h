/* SPDX-License-Identifier: MIT */
/*
 * TCP connections of lwIP as objects of an epoll: not blocking, with results as the kernel's calls
 * have them (negative errno). No type of lwIP is seen here, so this can stand beside the kernel's
 * socket headers.
 *
 * A connection is used by one thread at a time. lwIP's own thread changes it at the same time, and
 * wakes it.
 */
#ifndef LWSOCK_H
#define LWSOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <pollux/file.h>

struct lwsock;

/*
 * Starts lwIP with one network interface, 10.9.0.2. With tap NULL that is memory: what is sent to
 * the address comes back in. Else it is the tap device of that name, which must be up. Once.
 */
void lwsock_start(const char *tap);

/* NULL, if there is no memory or the port is taken. */
struct lwsock *lwsock_listen(uint16_t port);
/* To 10.9.0.2. Writable when it is connected. */
struct lwsock *lwsock_connect(uint16_t port);

/* NULL if nobody waits. */
struct lwsock *lwsock_accept(struct lwsock *listener);
/* 0 at the end, -EAGAIN, or what has ended the connection. */
ssize_t lwsock_recv(struct lwsock *s, void *buf, size_t n);
/* As much as there is room for, -EAGAIN if for nothing, or what has ended the connection. */
ssize_t lwsock_send(struct lwsock *s, const void *buf, size_t n);
/* What was sent still goes out. s may not be used any more; its file leaves the epolls. */
void lwsock_close(struct lwsock *s);

/* To be added to epolls. */
struct pollux_file *lwsock_file(struct lwsock *s);

/*
 * Told of each change, in lwIP's thread, with its lock held. It wakes the file, unless somebody
 * wants to be told by other means; `ring` is what that is told by.
 */
extern void (*lwsock_notify)(struct lwsock *s, uint32_t events);
void lwsock_set_ring(struct lwsock *s, int ring);
int lwsock_ring(const struct lwsock *s);

#endif
