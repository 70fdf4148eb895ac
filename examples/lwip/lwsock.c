/* SPDX-License-Identifier: MIT */
/* TCP connections of lwIP as objects of an epoll (lwsock.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <lwip/netif.h>
#include <lwip/tcp.h>
#include <lwip/tcpip.h>
#include <netif/tapif.h>

#include "lwsock.h"

/*
 * All but `file` and `events` is guarded by lwIP's core lock. `events` is written with the lock
 * held, and read without: poll takes no lock, so an epoll may be used with lwIP's held and the
 * other way round.
 */
struct lwsock {
	struct pollux_file file;
	uint32_t events;
	int ring;
	/* The error that has ended the connection, negative; lwIP has taken the pcb with it. */
	int error;
	int ended, connecting, full;
	struct tcp_pcb *pcb;
	/* Received and not taken. */
	struct pbuf *in;
	/* Of a listener: the connections that wait to be accepted. */
	struct lwsock *first, **last, *next;
};

static uint32_t lwsock_poll(struct pollux_file *f, uint32_t wanted)
{
	struct lwsock *s = pollux_container_of(f, struct lwsock, file);

	(void)wanted;
	return __atomic_load_n(&s->events, __ATOMIC_ACQUIRE);
}

static void lwsock_free(struct pollux_file *f)
{
	free(pollux_container_of(f, struct lwsock, file));
}

static const struct pollux_file_ops lwsock_ops = {
	.size = sizeof(lwsock_ops),
	.poll = lwsock_poll,
	.free = lwsock_free,
};

static void wake(struct lwsock *s, uint32_t events)
{
	pollux_file_wake(&s->file, events);
}

void (*lwsock_notify)(struct lwsock *s, uint32_t events) = wake;

/* What is true now. With the core lock held. */
static void update(struct lwsock *s)
{
	uint32_t events = 0;

	if (s->in || s->ended || s->error || s->first)
		events |= EPOLLIN | EPOLLRDNORM;
	if (s->ended || s->error)
		events |= EPOLLRDHUP;
	if (s->error)
		events |= EPOLLERR | EPOLLHUP;
	if (s->error || (!s->full && !s->connecting && !s->last))
		events |= EPOLLOUT | EPOLLWRNORM;
	__atomic_store_n(&s->events, events, __ATOMIC_RELEASE);
}

/* The change first, then the wake: also if it was true before, for that is an edge. */
static void changed(struct lwsock *s, uint32_t events)
{
	update(s);
	lwsock_notify(s, events);
}

/* lwIP's upcalls. They come with the core lock held. */

static err_t on_recv(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
	struct lwsock *s = arg;

	(void)pcb;
	(void)err;
	if (!p) {
		s->ended = 1;
		changed(s, EPOLLIN | EPOLLRDNORM | EPOLLRDHUP);
		return ERR_OK;
	}
	if (s->in)
		pbuf_cat(s->in, p);
	else
		s->in = p;
	changed(s, EPOLLIN | EPOLLRDNORM);
	return ERR_OK;
}

static err_t on_sent(void *arg, struct tcp_pcb *pcb, u16_t n)
{
	struct lwsock *s = arg;

	(void)n;
	if (s->full && tcp_sndbuf(pcb) >= TCP_SNDLOWAT &&
	    tcp_sndqueuelen(pcb) < TCP_SNDQUEUELOWAT) {
		s->full = 0;
		changed(s, EPOLLOUT | EPOLLWRNORM);
	}
	return ERR_OK;
}

static void on_error(void *arg, err_t err)
{
	struct lwsock *s = arg;

	s->pcb = NULL;
	s->error = err == ERR_RST || err == ERR_ABRT ? -ECONNRESET : -EIO;
	s->connecting = 0;
	changed(s, EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP);
}

static err_t on_connected(void *arg, struct tcp_pcb *pcb, err_t err)
{
	struct lwsock *s = arg;

	(void)pcb;
	(void)err;
	s->connecting = 0;
	changed(s, EPOLLOUT | EPOLLWRNORM);
	return ERR_OK;
}

static struct lwsock *lwsock_new(struct tcp_pcb *pcb)
{
	struct lwsock *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	pollux_file_init(&s->file, &lwsock_ops);
	s->ring = -1;
	s->pcb = pcb;
	tcp_arg(pcb, s);
	if (pcb->state != LISTEN) {
		tcp_recv(pcb, on_recv);
		tcp_sent(pcb, on_sent);
		tcp_err(pcb, on_error);
		tcp_nagle_disable(pcb);
	}
	update(s);
	return s;
}

static err_t on_accept(void *arg, struct tcp_pcb *pcb, err_t err)
{
	struct lwsock *l = arg, *s;

	if (err != ERR_OK || !pcb)
		return ERR_VAL;
	s = lwsock_new(pcb);
	/* lwIP takes the connection back then. */
	if (!s)
		return ERR_MEM;
	*l->last = s;
	l->last = &s->next;
	changed(l, EPOLLIN | EPOLLRDNORM);
	return ERR_OK;
}

/* The network interface of memory. What is for its own address lwIP gives back by itself. */

static err_t nowhere(struct netif *n, struct pbuf *p, const ip4_addr_t *to)
{
	(void)n;
	(void)p;
	(void)to;
	return ERR_RTE;
}

static err_t memory_init(struct netif *n)
{
	n->name[0] = 'm';
	n->name[1] = 'e';
	n->mtu = 1500;
	n->output = nowhere;
	return ERR_OK;
}

void lwsock_start(const char *tap)
{
	static struct netif netif;
	ip4_addr_t address, mask, gateway;

	tcpip_init(NULL, NULL);
	IP4_ADDR(&address, 10, 9, 0, 2);
	IP4_ADDR(&mask, 255, 255, 255, 0);
	IP4_ADDR(&gateway, 10, 9, 0, 1);
	/* So lwIP's driver learns which device it is. */
	if (tap)
		setenv("PRECONFIGURED_TAPIF", tap, 1);
	LOCK_TCPIP_CORE();
	if (!netif_add(&netif, &address, &mask, &gateway, NULL, tap ? tapif_init : memory_init,
		       tcpip_input)) {
		fprintf(stderr, "lwIP takes no network interface\n");
		exit(1);
	}
	netif_set_default(&netif);
	netif_set_up(&netif);
	netif_set_link_up(&netif);
	UNLOCK_TCPIP_CORE();
}

struct lwsock *lwsock_listen(uint16_t port)
{
	struct lwsock *s = NULL;
	struct tcp_pcb *pcb, *l = NULL;

	LOCK_TCPIP_CORE();
	pcb = tcp_new();
	if (pcb && tcp_bind(pcb, IP4_ADDR_ANY, port) == ERR_OK)
		l = tcp_listen(pcb);
	if (l)
		s = lwsock_new(l);
	if (s) {
		s->last = &s->first;
		update(s);
		tcp_accept(l, on_accept);
	} else if (l || pcb) {
		tcp_close(l ? l : pcb);
	}
	UNLOCK_TCPIP_CORE();
	return s;
}

struct lwsock *lwsock_connect(uint16_t port)
{
	struct lwsock *s = NULL;
	struct tcp_pcb *pcb;
	ip_addr_t to;

	IP_ADDR4(&to, 10, 9, 0, 2);
	LOCK_TCPIP_CORE();
	pcb = tcp_new();
	if (pcb)
		s = lwsock_new(pcb);
	if (s) {
		s->connecting = 1;
		update(s);
		/* lwIP's memory is malloc's: a SYN that cannot be made is sent later. */
		if (tcp_connect(pcb, &to, port, on_connected) != ERR_OK) {
			s->connecting = 0;
			s->error = -ENETUNREACH;
			update(s);
		}
	} else if (pcb) {
		tcp_abort(pcb);
	}
	UNLOCK_TCPIP_CORE();
	return s;
}

struct lwsock *lwsock_accept(struct lwsock *l)
{
	struct lwsock *s;

	LOCK_TCPIP_CORE();
	s = l->first;
	if (s) {
		l->first = s->next;
		if (!l->first)
			l->last = &l->first;
		s->next = NULL;
		update(l);
	}
	UNLOCK_TCPIP_CORE();
	return s;
}

ssize_t lwsock_recv(struct lwsock *s, void *buf, size_t n)
{
	ssize_t got;

	LOCK_TCPIP_CORE();
	if (s->in) {
		got = pbuf_copy_partial(s->in, buf, n > 0xffff ? 0xffff : (u16_t)n, 0);
		s->in = pbuf_free_header(s->in, (u16_t)got);
		/* The peer may send as much again. */
		if (s->pcb)
			tcp_recved(s->pcb, (u16_t)got);
		update(s);
	} else {
		got = s->error ? s->error : s->ended ? 0 : -EAGAIN;
	}
	UNLOCK_TCPIP_CORE();
	return got;
}

ssize_t lwsock_send(struct lwsock *s, const void *buf, size_t n)
{
	ssize_t done = -EAGAIN;

	LOCK_TCPIP_CORE();
	if (s->error) {
		done = s->error;
	} else if (!s->connecting) {
		size_t room = tcp_sndbuf(s->pcb);
		size_t part = n < room ? n : room;
		err_t err =
			part ? tcp_write(s->pcb, buf, (u16_t)part, TCP_WRITE_FLAG_COPY) : ERR_MEM;

		if (err == ERR_OK) {
			done = (ssize_t)part;
			tcp_output(s->pcb);
		} else if (err != ERR_MEM) {
			done = -EPIPE;
		}
		/* No room for some of it: writable again when the peer has acknowledged enough. */
		if (err == ERR_MEM || part < n) {
			s->full = 1;
			update(s);
		}
	}
	UNLOCK_TCPIP_CORE();
	return done;
}

/* lwIP has no way to s after this: no upcall comes late. With the core lock held. */
static void detach(struct lwsock *s)
{
	struct tcp_pcb *pcb = s->pcb;

	if (s->in)
		pbuf_free(s->in);
	s->in = NULL;
	s->pcb = NULL;
	if (!pcb)
		return;
	tcp_arg(pcb, NULL);
	if (!s->last) {
		tcp_recv(pcb, NULL);
		tcp_sent(pcb, NULL);
		tcp_err(pcb, NULL);
	}
	if (tcp_close(pcb) != ERR_OK)
		tcp_abort(pcb);
}

void lwsock_close(struct lwsock *s)
{
	struct lwsock *waiting;

	while ((waiting = s->last ? lwsock_accept(s) : NULL) != NULL)
		lwsock_close(waiting);
	LOCK_TCPIP_CORE();
	detach(s);
	UNLOCK_TCPIP_CORE();
	/* Wakes come with the core lock held, so none can be under way now. */
	pollux_file_put(&s->file);
}

struct pollux_file *lwsock_file(struct lwsock *s)
{
	return &s->file;
}

void lwsock_set_ring(struct lwsock *s, int ring)
{
	LOCK_TCPIP_CORE();
	s->ring = ring;
	UNLOCK_TCPIP_CORE();
}

int lwsock_ring(const struct lwsock *s)
{
	return s->ring;
}
