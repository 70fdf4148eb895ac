/* SPDX-License-Identifier: MIT */
/* Pairs of sockets, shutdown, and descriptors sent through them. */
#include "differential.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

static bool new_make(struct gen *g, struct step *s)
{
	static const int types[] = {SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};

	s->a = pick_free(g);
	if (s->a == NO_SLOT)
		return false;
	for (int tries = 0; tries < 8 && (s->b == NO_SLOT || s->b == s->a); tries++)
		s->b = pick_free(g);
	s->n = pick(g, types);
	s->flags = (chance(g, 90) ? SOCK_NONBLOCK : 0) | (chance(g, 25) ? SOCK_CLOEXEC : 0);
	return s->b != s->a && s->b != NO_SLOT;
}

static void new_apply(struct model *m, struct step *s)
{
	struct obj *a = NULL, *b;

	m->me->slot[s->a] = m->me->slot[s->b] = -1;
	if (model_room(m, 2))
		a = model_new(m, KIND_SOCKET, s->flags & SOCK_NONBLOCK);
	if (!a)
		return;
	a->refs = 1;
	b = model_new(m, KIND_SOCKET, s->flags & SOCK_NONBLOCK);
	if (!b) {
		a->kind = KIND_NONE;
		return;
	}
	a->refs = 0;
	a->peer = obj_index(m, b);
	b->peer = obj_index(m, a);
	model_install(m, s->a, a);
	model_install(m, s->b, b);
}

static void new_run(const struct step *s)
{
	int fds[2] = {-7, -8};
	int r = socketpair(AF_UNIX, s->n | s->flags, 0, fds);

	log_ret(r);
	set_slot(s->a, r ? -1 : fds[0]);
	set_slot(s->b, r ? -1 : fds[1]);
	log_hash(fds[0]);
	log_hash(fds[1]);
	say("\ts%d = fds[0]; /* %d */\n\ts%d = fds[1]; /* %d */\n", s->a, fds[0], s->b, fds[1]);
}

static void new_text(const struct step *s)
{
	call("socketpair(AF_UNIX, %s%s%s, 0, fds)",
	     s->n == SOCK_STREAM  ? "SOCK_STREAM"
	     : s->n == SOCK_DGRAM ? "SOCK_DGRAM"
				  : "SOCK_SEQPACKET",
	     s->flags & SOCK_NONBLOCK ? " | SOCK_NONBLOCK" : "",
	     s->flags & SOCK_CLOEXEC ? " | SOCK_CLOEXEC" : "");
}

static bool shut_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, KINDS(KIND_SOCKET));
	s->n = below(g, rare(g, 20) ? 4 : 3);
	return s->a != NO_SLOT;
}

static void no_apply(struct model *m, struct step *s)
{
	(void)m;
	(void)s;
}

static void shut_run(const struct step *s)
{
	log_ret(shutdown(number_of(s->a), s->n));
}

static void shut_text(const struct step *s)
{
	call("shutdown(%s, %d)", slot_name(s->a), s->n);
}

/* --- SCM_RIGHTS: b goes through a, with one byte -------------------------------------- */

/* Sockets stay out of it: those in flight are closed by a collector at a time of its own. */
#define CAN_BE_SENT (ANY_KIND & ~KINDS(KIND_SOCKET))

static bool pass_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, KINDS(KIND_SOCKET));
	s->b = pick_slot(g, CAN_BE_SENT);
	s->n = below(g, 8);
	return s->a != NO_SLOT && s->b != NO_SLOT;
}

/*
 * Which of the descriptors sent is received when, or is dropped by a read, depends on more
 * than the model knows. It keeps what was sent for ever, and takes none of it for certain.
 */
static void pass_apply(struct model *m, struct step *s)
{
	struct obj *a = model_obj(m, s->a), *o = model_obj(m, s->b);
	struct obj *to;

	s->skip = !o || o->kind == KIND_SOCKET;
	if (s->skip)
		return;
	to = a && a->kind == KIND_SOCKET && a->peer >= 0 ? &m->objs[a->peer] : NULL;
	s->skip = to && to->nflying == sizeof(to->flying) / sizeof(to->flying[0]);
	if (s->skip)
		return;
	if (to)
		to->flying[to->nflying++] = obj_index(m, o);
	model_escape_maybe(m, o);
	o->unsure = true;
	model_ref(m, o);
}

static void pass_run(const struct step *s)
{
	char byte = 'd', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fd = number_of(s->b);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	log_ret(sendmsg(number_of(s->a), &msg, MSG_DONTWAIT));
}

static void pass_text(const struct step *s)
{
	call("send_fd(%s, %s)", slot_name(s->a), slot_name(s->b));
}

static bool take_make(struct gen *g, struct step *s)
{
	s->a = pick_slot(g, KINDS(KIND_SOCKET));
	s->b = pick_free(g);
	s->how = below(g, 2);
	s->n = RECEIVED + (int)below(g, RECEIVED_NUMBERS);
	return s->a != NO_SLOT && s->b != NO_SLOT;
}

static void take_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj_kind(m, s->a, KIND_SOCKET);

	m->me->slot[s->b] = s->n;
	model_close(m, s->n);
	if (o && o->nflying && m->me->limit == LOW_NUMBERS)
		model_replace(m, s->n, &m->objs[o->flying[0]]);
}

static void take_run(const struct step *s)
{
	char bytes[64], control[CMSG_SPACE(4 * sizeof(int))] = {0};
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	long r = recvmsg(number_of(s->a), &msg, MSG_DONTWAIT | (s->how ? MSG_CMSG_CLOEXEC : 0));
	struct cmsghdr *c;
	int got;

	log_ret(r);
	set_slot(s->b, s->n);
	close(s->n);
	if (r < 0)
		return;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		int n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (int i = 0; c->cmsg_type == SCM_RIGHTS && i < n; i++) {
			memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
			log_hash(got);
			say("\t/* received %d */\n", got);
			dup2(got, s->n);
			close(got);
		}
	}
}

static void take_text(const struct step *s)
{
	call("recv_fd(%s, %d, %s)", slot_name(s->a), s->n, s->how ? "MSG_CMSG_CLOEXEC" : "0");
	say("\ts%d = %d;\n", s->b, s->n);
}

const struct op ops_socket[] = {
	{"new_socket", {0, 8, 3, 5}, new_make, new_apply, new_run, new_text, false},
	{"shutdown", {0, 4, 1, 2}, shut_make, no_apply, shut_run, shut_text, false},
	{"send_fd", {0, 3, 1, 2}, pass_make, pass_apply, pass_run, pass_text, false},
	{"recv_fd", {0, 4, 1, 2}, take_make, take_apply, take_run, take_text, false},
	{0},
};
