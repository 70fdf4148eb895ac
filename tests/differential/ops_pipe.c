/* SPDX-License-Identifier: MIT */
/* pipe, splice and tee; FIONREAD. Pipes are the kernel's. */
#include "differential.h"

#include <sys/ioctl.h>

static bool new_make(struct gen *g, struct step *s)
{
	s->a = pick_free(g);
	if (s->a == NO_SLOT)
		return false;
	for (int tries = 0; tries < 8 && (s->b == NO_SLOT || s->b == s->a); tries++)
		s->b = pick_free(g);
	if (s->b == s->a || s->b == NO_SLOT)
		return false;
	s->how = below(g, 3);
	s->flags = chance(g, 90) ? O_NONBLOCK : 0;
	if (chance(g, 10))
		s->flags |= O_DIRECT;
	if (chance(g, 25))
		s->flags |= O_CLOEXEC;
	if (rare(g, 40))
		s->flags |= O_APPEND;
	s->ptr = rare(g, 40) ? (int)below(g, PTR_COUNT) : PTR_GOOD;
	s->room = below(g, 9);
	return true;
}

static bool new_writable(const struct step *s)
{
	return s->ptr == PTR_GOOD || (s->ptr == PTR_EDGE && s->room >= 8);
}

static void new_apply(struct model *m, struct step *s)
{
	uint32_t flags = s->how == 1 ? 0 : s->flags;
	struct obj *r = NULL, *w = NULL;
	bool good = !(flags & O_APPEND) && model_room(m, 2) && new_writable(s);

	m->me->slot[s->a] = m->me->slot[s->b] = -1;
	if (!good)
		return;
	r = model_new(m, KIND_PIPE_R, flags & O_NONBLOCK);
	if (r)
		r->refs = 1;
	w = r ? model_new(m, KIND_PIPE_W, flags & O_NONBLOCK) : NULL;
	if (!w) {
		if (r)
			r->kind = KIND_NONE;
		return;
	}
	r->refs = 0;
	r->peer = obj_index(m, w);
	w->peer = obj_index(m, r);
	w->packets = r->packets = flags & O_DIRECT;
	model_install(m, s->a, r);
	model_install(m, s->b, w);
}

static void new_run(const struct step *s)
{
	int fds[2] = {-7, -8}, *p = pointer(s, fds), r;

	r = s->how == 1	  ? pipe(p)
	    : s->how == 2 ? (int)syscall(SYS_pipe2, p, s->flags)
			  : pipe2(p, s->flags);
	log_ret(r);
	if (r == 0 && p != fds)
		memcpy(fds, p, sizeof(fds));
	set_slot(s->a, r ? -1 : fds[0]);
	set_slot(s->b, r ? -1 : fds[1]);
	log_hash(fds[0]);
	log_hash(fds[1]);
	say("\ts%d = fds[0]; /* %d */\n\ts%d = fds[1]; /* %d */\n", s->a, fds[0], s->b, fds[1]);
}

static void new_text(const struct step *s)
{
	const char *p = ptr_name(s, "fds");

	if (s->how == 1)
		call("pipe(%s)", p);
	else
		call(s->how == 2 ? "syscall(SYS_pipe2, %s, %s%s%s%s)" : "pipe2(%s, %s%s%s%s)", p,
		     s->flags & O_NONBLOCK ? "O_NONBLOCK" : "0",
		     s->flags & O_DIRECT ? " | O_DIRECT" : "",
		     s->flags & O_CLOEXEC ? " | O_CLOEXEC" : "",
		     s->flags & O_APPEND ? " | O_APPEND" : "");
}

/* --- FIONREAD ------------------------------------------------------------------------ */

static bool bytes_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, ANY_KIND);
	return s->a != NO_SLOT;
}

static void bytes_apply(struct model *m, struct step *s)
{
	(void)m;
	(void)s;
}

static void bytes_run(const struct step *s)
{
	int n = -1;

	log_ret(ioctl(number_of(s->a), FIONREAD, &n));
	log_value("n", (uint32_t)n);
}

static void bytes_text(const struct step *s)
{
	call("ioctl(%s, FIONREAD, &n)", slot_name(s->a));
}

/* --- splice, tee --------------------------------------------------------------------- */

static bool splice_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, KINDS(KIND_PIPE_R) | (rare(g, 4) ? KINDS(KIND_SOCKET) : 0));
	s->b = pick_slot_or_bad(g, KINDS(KIND_PIPE_W));
	if (rare(g, 60))
		s->a = pick_slot(g, KINDS(KIND_EVENTFD));
	s->how = below(g, 3);
	s->n = chance(g, 70) ? 1 + (int)below(g, 100) : 4096 * (int)below(g, 18);
	return s->a != NO_SLOT && s->b != NO_SLOT;
}

static void splice_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a), *to = model_obj(m, s->b);

	if (o)
		model_escape_maybe(m, o);
	if (to)
		model_escape_maybe(m, to);
}

static void splice_run(const struct step *s)
{
	int from = number_of(s->a), to = number_of(s->b);

	/* A socket's own time-outs are not SPLICE_F_NONBLOCK's. */
	if (would_block(s, from, POLLIN)) {
		log_left_out("would block");
		return;
	}
	if (s->how == 0)
		log_ret(tee(from, to, s->n, SPLICE_F_NONBLOCK));
	else
		log_ret(splice(from, NULL, to, NULL, s->n, SPLICE_F_NONBLOCK));
}

static void splice_text(const struct step *s)
{
	if (s->how == 0)
		call("tee(%s, %s, %d, SPLICE_F_NONBLOCK)", slot_name(s->a), slot_name(s->b), s->n);
	else
		call("splice(%s, NULL, %s, NULL, %d, SPLICE_F_NONBLOCK)", slot_name(s->a),
		     slot_name(s->b), s->n);
}

const struct op ops_pipe[] = {
	{"new_pipe", {0, 14, 6, 8}, new_make, new_apply, new_run, new_text, false},
	{"bytes", {0, 2, 1, 1}, bytes_make, bytes_apply, bytes_run, bytes_text, false},
	{"splice", {0, 3, 1, 1}, splice_make, splice_apply, splice_run, splice_text, false},
	{0},
};
