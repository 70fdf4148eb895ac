/* SPDX-License-Identifier: MIT */
/* eventfd, eventfd_read and eventfd_write. */
#include "differential.h"

static bool new_make(struct gen *g, struct step *s)
{
	static const uint32_t inits[] = {1, 1, 2, 5, 0x7fffffff, 0x80000000u, ~0u};

	bool inproc = g->m.profile == PROFILE_INPROC;
	bool cached = inproc ? !rare(g, 40) : chance(g, 60);

	s->a = pick_free(g);
	s->how = below(g, 3);
	/* A count from the beginning is the kernel's, and loses the order. */
	s->u = (inproc ? !rare(g, 40) : chance(g, 60)) ? 0 : pick(g, inits);
	s->flags = cached || chance(g, 60) ? EFD_NONBLOCK : 0;
	if (!cached && chance(g, 50))
		s->flags |= EFD_SEMAPHORE;
	if (chance(g, 25))
		s->flags |= EFD_CLOEXEC;
	if (rare(g, 50))
		s->flags |= 2;
	return s->a != NO_SLOT;
}

static void new_apply(struct model *m, struct step *s)
{
	bool good = !(s->flags & ~(uint32_t)(EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC));
	struct obj *o = good ? model_new(m, KIND_EVENTFD, s->flags & EFD_NONBLOCK) : NULL;

	if (!o || !model_install(m, s->a, o)) {
		m->me->slot[s->a] = -1;
		if (o)
			o->kind = KIND_NONE;
		return;
	}
	o->count = s->u;
	o->semaphore = s->flags & EFD_SEMAPHORE;
	o->fresh = !o->nonblock && !o->semaphore;
	if (!o->nonblock || o->semaphore)
		o->where = AT_KERNEL;
	else if (s->u)
		model_both_sides(m, o);
}

static void new_run(const struct step *s)
{
	log_fd(s->a, s->how == 2 ? (int)syscall(SYS_eventfd2, (unsigned int)s->u, s->flags)
				 : eventfd(s->u, s->flags));
}

static void new_text(const struct step *s)
{
	call(s->how == 2 ? "syscall(SYS_eventfd2, %s, " : "eventfd(%s, ", number_text(s->u));
	if (s->flags & 2)
		call("2 | ");
	call("%s%s%s)", s->flags & EFD_NONBLOCK ? "EFD_NONBLOCK" : "0",
	     s->flags & EFD_SEMAPHORE ? " | EFD_SEMAPHORE" : "",
	     s->flags & EFD_CLOEXEC ? " | EFD_CLOEXEC" : "");
}

/* libc's own pair. */

static bool own_make(struct gen *g, struct step *s)
{
	s->a = pick_slot_or_bad(g, KINDS(KIND_EVENTFD));
	s->n = below(g, 2);
	s->u = below(g, 3);
	return s->a != NO_SLOT;
}

static void own_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj_kind(m, s->a, KIND_EVENTFD);

	if (!o)
		return;
	if (s->n && o->count)
		o->count -= o->semaphore ? 1 : o->count;
	else if (!s->n && o->count <= UINT64_MAX - 1 - s->u)
		o->count += s->u;
}

static void own_run(const struct step *s)
{
	int fd = number_of(s->a);
	eventfd_t value = 0;
	bool ticks;
	int r;

	if (would_block(s, fd, s->n ? POLLIN : POLLOUT)) {
		log_left_out("would block");
		return;
	}
	/* There is room for 1, but perhaps not for more. */
	ticks = !s->n && s->u > 1 && blocking(fd);
	if (ticks)
		ticks_start();
	r = s->n ? eventfd_read(fd, &value) : eventfd_write(fd, s->u);
	if (ticks)
		ticks_stop();
	log_ret(r);
	if (s->n && r == 0)
		log_value("value", value);
}

static void own_text(const struct step *s)
{
	if (s->n)
		call("eventfd_read(%s, &value)", slot_name(s->a));
	else
		call("eventfd_write(%s, %s)", slot_name(s->a), number_text(s->u));
}

const struct op ops_eventfd[] = {
	{"new_eventfd", {30, 20, 24, 20}, new_make, new_apply, new_run, new_text, false},
	{"eventfd_rw", {3, 3, 2, 2}, own_make, own_apply, own_run, own_text, true},
	{0},
};
