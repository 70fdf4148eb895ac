/* SPDX-License-Identifier: MIT */
/* poll, ppoll, select and pselect that do not wait. */
#include "differential.h"

#include <sys/select.h>
#include <time.h>

#define SET 8

enum poll_how {
	POLL_POLL,
	POLL_PPOLL,
	POLL_SYSCALL,
	POLL_SELECT,
	POLL_PSELECT,
};

static const short masks[] = {
	POLLIN,
	POLLOUT,
	POLLIN | POLLOUT,
	0,
	POLLIN | POLLPRI | POLLRDHUP,
	POLLRDNORM | POLLWRNORM,
	(short)0xffff,
	POLLIN | POLLRDNORM,
};

static int8_t entry_slot(const struct step *s, int i)
{
	return (int8_t)(s->u >> 8 * i);
}

static int entry_mask(const struct step *s, int i)
{
	return (s->v >> 8 * i) & 7;
}

static bool poll_make(struct gen *g, struct step *s)
{
	uint32_t kinds = ANY_KIND;

	/* An epoll in the set goes to the kernel by it, with all that it watches. */
	if (g->m.profile == PROFILE_INPROC ? !rare(g, 200) : !rare(g, 12))
		kinds &= ~KINDS(KIND_EPOLL);
	/* What a bare poll or a select names goes to the kernel, too. */
	s->how = below(g, g->m.profile == PROFILE_INPROC && !rare(g, 200) ? POLL_SYSCALL : 5);
	s->n = chance(g, 60) ? 1 : below(g, SET + 1);
	for (int i = 0; i < s->n; i++) {
		int slot = pick_slot_or_bad(g, kinds);

		if (slot == NO_SLOT)
			return false;
		s->u |= (uint64_t)(uint8_t)slot << 8 * i;
		s->v |= (uint64_t)below(g, 8) << 8 * i;
	}
	if (rare(g, 60)) {
		s->ptr = below(g, PTR_COUNT);
		s->room = below(g, 2 * sizeof(struct pollfd) + 1);
	}
	return true;
}

static void poll_apply(struct model *m, struct step *s)
{
	/* Before what is told of the others after the call. */
	for (int i = 0; i < s->n; i++)
		model_leaves_first(m, s, entry_slot(s, i));
	for (int i = 0; i < s->n; i++) {
		struct obj *o = model_obj(m, entry_slot(s, i));

		/* All of it goes if there are more than the limit allows (select does not mind). */
		if (o && o->kind != KIND_EPOLL && s->n > m->me->limit)
			model_escape_maybe(m, o);
		/* If the mask names a set, and the number has a place there. */
		if (o && s->how >= POLL_SYSCALL)
			model_escape_maybe(m, o);
	}
}

static void poll_some(const struct step *s)
{
	struct pollfd set[SET], *p = pointer(s, set);
	struct timespec zero = {0};
	bool before = false, sleeps = storm_sleeps();
	int r;

	do {
		for (int i = 0; i < s->n; i++)
			set[i] = (struct pollfd){.fd = number_of(entry_slot(s, i)),
						 .events = masks[entry_mask(s, i)],
						 .revents = 0x5a5a};
		if (s->ptr == PTR_EDGE)
			memcpy(p, set,
			       s->room < s->n * sizeof(set[0]) ? s->room : s->n * sizeof(set[0]));
		if (s->how == POLL_PPOLL)
			r = ppoll(p, s->n, sleeps ? NULL : &zero, NULL);
		else if (s->how == POLL_SYSCALL)
			r = RAW_POLL(p, s->n, sleeps ? -1 : 0);
		else
			r = poll(p, s->n, sleeps ? -1 : 0);
	} while (!sleeps && storm_again(r, &before));
	log_ret(r);
	for (int i = 0; p == set && i < s->n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "set[%d].revents", i);
		log_value(name, (uint16_t)set[i].revents);
	}
}

static void select_some(const struct step *s)
{
	struct timespec zero = {0};
	struct timeval none = {0};
	fd_set sets[3];
	bool before = false, sleeps = storm_sleeps();
	int r, max;

	do {
		max = 0;
		for (int k = 0; k < 3; k++)
			FD_ZERO(&sets[k]);
		for (int i = 0; i < s->n; i++) {
			int fd = number_of(entry_slot(s, i)), mask = masks[entry_mask(s, i)];

			if (fd < 0 || fd >= LOW_NUMBERS)
				continue;
			if (fd >= max)
				max = fd + 1;
			if (mask & POLLIN)
				FD_SET(fd, &sets[0]);
			if (mask & POLLOUT)
				FD_SET(fd, &sets[1]);
			if (mask & POLLPRI)
				FD_SET(fd, &sets[2]);
		}
		r = s->how == POLL_PSELECT
			    ? pselect(max, &sets[0], &sets[1], &sets[2], sleeps ? NULL : &zero,
				      NULL)
			    : select(max, &sets[0], &sets[1], NULL, sleeps ? NULL : &none);
	} while (!sleeps && storm_again(r, &before));
	log_ret(r);
	for (int k = 0; k < 3; k++) {
		char name[32];
		uint64_t bits;

		memcpy(&bits, &sets[k], sizeof(bits));
		snprintf(name, sizeof(name), "bits(&set[%d])", k);
		log_value(name, bits);
	}
}

static void poll_run(const struct step *s)
{
	if (s->how < POLL_SELECT)
		poll_some(s);
	else
		select_some(s);
}

static void poll_text(const struct step *s)
{
	static const char *const names[] = {"poll", "ppoll", "poll_syscall", "select", "pselect"};

	if (s->ptr != PTR_GOOD && s->how < POLL_SELECT) {
		call("%s(%s, %d)", names[s->how], ptr_name(s, ""), s->n);
		return;
	}
	call("%s(set, %d", names[s->how], s->n);
	for (int i = 0; i < s->n; i++)
		call(", %s, %#x", slot_name(entry_slot(s, i)), (uint16_t)masks[entry_mask(s, i)]);
	call(")");
}

const struct op ops_poll[] = {
	{"poll", {8, 10, 8, 6}, poll_make, poll_apply, poll_run, poll_text, true},
	{0},
};
