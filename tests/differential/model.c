/* SPDX-License-Identifier: MIT */
/*
 * What a sequence has open. The model follows descriptors exactly, as far as it knows which
 * calls succeed, and the state of objects roughly.
 *
 * Order. Events of one epoll are reported in the order in which they arrived (EP-ORD-01);
 * Pollux keeps it among objects served in process, and the kernel does among its own. In
 * an epoll that has both, the order between the two is not kept, so neither is which of
 * them come first when maxevents does not cover all. Such an epoll gets any_order for
 * the rest of its life. For that the model must know where an object's state can be.
 */
#include "differential.h"

bool model_moves;

bool kind_adopted(enum kind kind)
{
	return kind == KIND_EPOLL || kind == KIND_EVENTFD;
}

void model_init(struct model *m, enum profile profile)
{
	m->profile = profile;
	m->nobjs = m->nsettled = 0;
	for (int p = 0; p < PROCS; p++) {
		m->procs[p].alive = p == 0;
		m->procs[p].limit = LOW_NUMBERS;
		for (int i = 0; i < SLOTS; i++)
			m->procs[p].slot[i] = -1;
		for (int i = 0; i < NUMBERS; i++)
			m->procs[p].obj[i] = -1;
	}
	m->me = &m->procs[0];
}

/* Place in proc.obj of a descriptor number; -1: none. */
static int number_index(int number)
{
	if (number >= 0 && number < LOW_NUMBERS)
		return number;
	if (number >= HIGH_NUMBER && number < HIGH_NUMBER + HIGH_NUMBERS)
		return number - HIGH_NUMBER + LOW_NUMBERS;
	if (number >= RECEIVED && number < RECEIVED + RECEIVED_NUMBERS)
		return number - RECEIVED + LOW_NUMBERS + HIGH_NUMBERS;
	return -1;
}

static int number_at(int index)
{
	if (index < LOW_NUMBERS)
		return index;
	index -= LOW_NUMBERS;
	return index < HIGH_NUMBERS ? HIGH_NUMBER + index : RECEIVED + index - HIGH_NUMBERS;
}

int model_number(struct model *m, int slot)
{
	return slot < 0 ? none_number(slot) : m->me->slot[slot];
}

struct obj *model_obj(struct model *m, int slot)
{
	return model_obj_at(m, model_number(m, slot));
}

struct obj *model_obj_at(struct model *m, int number)
{
	int i = number_index(number);

	return i < 0 || m->me->obj[i] < 0 ? NULL : &m->objs[m->me->obj[i]];
}

struct obj *model_obj_kind(struct model *m, int slot, enum kind kind)
{
	struct obj *o = model_obj(m, slot);

	return o && o->kind == kind ? o : NULL;
}

struct obj *model_new(struct model *m, enum kind kind, bool nonblock)
{
	struct obj *o = NULL;

	for (int i = 0; i < m->nobjs && !o; i++)
		if (!m->objs[i].kind)
			o = &m->objs[i];
	if (!o) {
		if (m->nobjs == OBJECTS)
			return NULL;
		o = &m->objs[m->nobjs++];
	}
	memset(o, 0, offsetof(struct obj, items));
	o->kind = kind;
	o->where = !kind_adopted(kind)			 ? AT_KERNEL
		   : model_moves && kind == KIND_EVENTFD ? AT_EITHER
							 : AT_POLLUX;
	o->nonblock = nonblock;
	o->peer = -1;
	return o;
}

void model_ref(struct model *m, struct obj *o)
{
	(void)m;
	o->refs++;
}

void model_del_item(struct obj *ep, struct item *it)
{
	*it = ep->items[--ep->nitems];
}

void model_unref(struct model *m, struct obj *o)
{
	int index = obj_index(m, o);

	if (--o->refs > 0)
		return;
	o->kind = KIND_NONE;
	for (int i = 0; i < m->nobjs; i++) {
		struct obj *ep = &m->objs[i];

		if (ep->peer == index)
			ep->peer = -1;
		if (ep->kind != KIND_EPOLL)
			continue;
		for (int k = ep->nitems - 1; k >= 0; k--)
			if (ep->items[k].obj == index)
				model_del_item(ep, &ep->items[k]);
	}
}

bool model_room(struct model *m, int n)
{
	for (int i = FIRST_NUMBER; i < m->me->limit; i++)
		n -= m->me->obj[i] < 0;
	return n <= 0;
}

bool model_install_from(struct model *m, int slot, struct obj *o, int lowest)
{
	for (int i = lowest > FIRST_NUMBER ? lowest : FIRST_NUMBER; i < m->me->limit; i++) {
		if (m->me->obj[i] >= 0)
			continue;
		m->me->obj[i] = obj_index(m, o);
		model_ref(m, o);
		if (slot >= 0)
			m->me->slot[slot] = i;
		return true;
	}
	if (slot >= 0)
		m->me->slot[slot] = -1;
	return false;
}

bool model_install(struct model *m, int slot, struct obj *o)
{
	return model_install_from(m, slot, o, 0);
}

void model_close(struct model *m, int number)
{
	int i = number_index(number), was;

	if (i < 0 || m->me->obj[i] < 0)
		return;
	was = m->me->obj[i];
	m->me->obj[i] = -1;
	model_unref(m, &m->objs[was]);
}

void model_replace(struct model *m, int number, struct obj *o)
{
	int i = number_index(number);

	if (i < 0)
		return;
	model_ref(m, o);
	model_close(m, number);
	m->me->obj[i] = obj_index(m, o);
}

/* An epoll whose items may be on both sides. */
static void check_order(struct model *m, struct obj *ep)
{
	if (ep->where == AT_KERNEL || ep->any_order)
		return;
	for (int i = 0; i < ep->nitems; i++)
		for (int k = 0; k < ep->nitems; k++)
			if (ep->items[i].obj != ep->items[k].obj &&
			    m->objs[ep->items[i].obj].where >= AT_EITHER &&
			    m->objs[ep->items[k].obj].where <= AT_EITHER)
				ep->any_order = true;
}

static void check_watchers(struct model *m, struct obj *o)
{
	for (int i = 0; i < m->nobjs; i++)
		for (int k = 0; m->objs[i].kind == KIND_EPOLL && k < m->objs[i].nitems; k++)
			if (m->objs[i].items[k].obj == obj_index(m, o)) {
				check_order(m, &m->objs[i]);
				break;
			}
}

/* Nor is the order kept of what watches it. */
void model_order_lost(struct model *m, struct obj *ep)
{
	if (ep->any_order)
		return;
	ep->any_order = true;
	for (int i = 0; i < m->nobjs; i++)
		for (int k = 0; m->objs[i].kind == KIND_EPOLL && k < m->objs[i].nitems; k++)
			if (m->objs[i].items[k].obj == obj_index(m, ep)) {
				model_order_lost(m, &m->objs[i]);
				break;
			}
}

/* What watches the epoll is told of it, too. */
static void repeats_reach(struct model *m, struct obj *ep)
{
	for (int i = 0; i < m->nobjs; i++) {
		struct obj *outer = &m->objs[i];

		for (int k = 0; outer->kind == KIND_EPOLL && k < outer->nitems; k++) {
			if (outer->items[k].obj != obj_index(m, ep) || outer->items[k].may_repeat)
				continue;
			outer->items[k].may_repeat = true;
			repeats_reach(m, outer);
		}
	}
}

/*
 * A poll of an epoll takes off its list what it finds before the first that is ready. If the order
 * is lost it is not known what that was; and whether a MOD puts it there anew, and tells of it.
 */
void model_modified(struct model *m, struct obj *ep)
{
	if (ep->any_order)
		repeats_reach(m, ep);
}

/* Its count is written to the kernel's object, unless it is there already. */
static void may_repeat(struct model *m, struct obj *o)
{
	if (o->kind != KIND_EVENTFD || o->where == AT_KERNEL)
		return;
	for (int i = 0; i < m->nobjs; i++) {
		struct obj *ep = &m->objs[i];

		for (int k = 0; ep->kind == KIND_EPOLL && k < ep->nitems; k++) {
			if (ep->items[k].obj != obj_index(m, o))
				continue;
			model_order_lost(m, ep);
			ep->items[k].may_repeat = true;
			repeats_reach(m, ep);
		}
	}
}

/* What is no epoll. */
static void move_file(struct model *m, struct obj *o, enum where where)
{
	may_repeat(m, o);
	o->where = where;
	check_watchers(m, o);
}

/* By a number that means this epoll for certain. */
static int number_of_epoll(struct model *m, const struct proc *p, struct obj *ep)
{
	for (int i = 0; i < LOW_NUMBERS + HIGH_NUMBERS; i++)
		if (p->obj[i] == obj_index(m, ep))
			return number_at(i);
	return -1;
}

/* What ep watches has to be settled first, and only the other process can do that. */
static bool settled_by_other(struct model *m, struct obj *ep)
{
	const struct proc *other = &m->procs[m->me == &m->procs[0]];
	bool here = number_of_epoll(m, m->me, ep) >= 0;

	for (int i = 0; i < ep->nitems; i++) {
		struct obj *o = &m->objs[ep->items[i].obj];

		if (o->kind == KIND_EPOLL ? settled_by_other(m, o)
					  : !here && ep->items[i].may_repeat && other->alive &&
						    number_of_epoll(m, other, ep) >= 0)
			return true;
	}
	return false;
}

/* An epoll of this process is in that state. */
static bool other_settles_first(struct model *m)
{
	for (int i = 0; i < m->nobjs; i++)
		if (m->objs[i].kind == KIND_EPOLL && number_of_epoll(m, m->me, &m->objs[i]) >= 0 &&
		    settled_by_other(m, &m->objs[i]))
			return true;
	return false;
}

static void settle_add(struct model *m, struct step *s, struct settled what)
{
	if (m->nsettled == SETTLED) {
		fprintf(stderr, "more than %d events to be settled\n", SETTLED);
		exit(2);
	}
	if (!s->nsettled)
		s->settled = m->nsettled;
	m->settled[m->nsettled++] = what;
	s->nsettled++;
}

/* What it watches comes first: it tells what is in there. (Linux nests no deeper.) */
static void settle_epoll(struct model *m, struct step *s, struct obj *ep, int depth)
{
	int number = ep->kind == KIND_EPOLL ? number_of_epoll(m, m->me, ep) : -1;

	if (number < 0 || depth > 5)
		return;
	for (int i = 0; i < ep->nitems; i++)
		settle_epoll(m, s, &m->objs[ep->items[i].obj], depth + 1);
	for (int i = 0; i < ep->nitems; i++) {
		struct item *it = &ep->items[i];

		if (it->may_repeat)
			settle_add(m, s,
				   (struct settled){.number = number,
						    .looks = !(it->events & EPOLLET),
						    .data = it->data});
		it->may_repeat = false;
	}
}

void model_settle(struct model *m, struct step *s)
{
	for (int i = 0; i < m->nobjs; i++)
		settle_epoll(m, s, &m->objs[i], 0);
}

/* A number that Pollux may have taken for itself since the sequence gave it up. */
static bool is_hidden(struct model *m, int slot)
{
	return slot != NO_SLOT && model_number(m, slot) >= HIGH_NUMBER && !model_obj(m, slot) &&
	       model_number(m, slot) < HIGH_NUMBER + 200;
}

void model_apply(struct model *m, struct step *s)
{
	struct obj *ep;

	m->me = &m->procs[s->proc];
	s->skip = s->any_order = false;
	s->nsettled = 0;
	if (!BAD_POINTERS)
		s->ptr = PTR_GOOD;
	if (!m->me->alive) {
		s->skip = true;
		return;
	}
	if (other_settles_first(m)) {
		s->skip = true;
		return;
	}
	model_settle(m, s);
	if (!ops[s->op]->replaced && (is_hidden(m, s->a) || is_hidden(m, s->b))) {
		s->skip = true;
		return;
	}
	ep = model_obj_kind(m, s->a, KIND_EPOLL);
	s->direct = ep && !ep->unsure;
	ops[s->op]->apply(m, s);
}

void model_leaves_first(struct model *m, struct step *s, int slot)
{
	struct obj *ep = model_obj_kind(m, slot, KIND_EPOLL);

	if (!ep || ep->where == AT_KERNEL)
		return;
	model_escape_maybe(m, ep);
	settle_add(m, s, (struct settled){.number = model_number(m, slot), .leaves = true});
	model_settle(m, s);
}

void model_escape(struct model *m, struct obj *o)
{
	o->fresh = false;
	if (o->where == AT_KERNEL)
		return;
	if (o->kind == KIND_EPOLL) {
		o->where = AT_KERNEL;
		for (int i = 0; i < o->nitems; i++)
			model_escape(m, &m->objs[o->items[i].obj]);
		return;
	}
	move_file(m, o, AT_KERNEL);
}

void model_both_sides(struct model *m, struct obj *o)
{
	if (o->where != AT_POLLUX)
		return;
	o->where = AT_EITHER;
	check_watchers(m, o);
}

/*
 * Who reads all there is, or adds to it, has no edge of before left to be repeated: the count has
 * gone, or there is an edge anyway.
 */
void model_may_return(struct model *m, struct obj *o)
{
	if (model_moves)
		may_repeat(m, o);
}

void model_may_adopt(struct model *m, struct obj *o)
{
	if (!o->fresh)
		return;
	o->fresh = false;
	o->where = AT_EITHER;
	check_watchers(m, o);
}

bool model_watched(struct model *m, struct obj *o, struct obj *ep)
{
	for (int i = 0; i < m->nobjs; i++)
		for (int k = 0; m->objs[i].kind == KIND_EPOLL && k < m->objs[i].nitems; k++)
			if (&m->objs[i] != ep && m->objs[i].items[k].obj == obj_index(m, o))
				return true;
	return false;
}

void model_escape_pair(struct model *m, struct obj *a, struct obj *b)
{
	enum where wa = a->where, wb = b->where;

	/* Both at once: neither is left with half of its items. */
	a->where = b->where = AT_KERNEL;
	for (int i = 0; wa != AT_KERNEL && i < a->nitems; i++)
		model_escape(m, &m->objs[a->items[i].obj]);
	for (int i = 0; wb != AT_KERNEL && i < b->nitems; i++)
		model_escape(m, &m->objs[b->items[i].obj]);
}

void model_escape_maybe(struct model *m, struct obj *o)
{
	if (o->where == AT_KERNEL)
		return;
	if (o->kind == KIND_EPOLL) {
		o->where = AT_EITHER;
		for (int i = 0; i < o->nitems; i++)
			model_escape_maybe(m, &m->objs[o->items[i].obj]);
		return;
	}
	move_file(m, o, AT_EITHER);
}

/* Nothing is left on the other side, so no order is mixed by it. */
void model_escape_all(struct model *m)
{
	for (int i = 0; i < m->nobjs; i++)
		may_repeat(m, &m->objs[i]);
	for (int i = 0; i < m->nobjs; i++)
		m->objs[i].where = AT_KERNEL;
}

bool model_reaches(struct model *m, struct obj *from, struct obj *to)
{
	if (from == to)
		return true;
	for (int i = 0; from->kind == KIND_EPOLL && i < from->nitems; i++)
		if (model_reaches(m, &m->objs[from->items[i].obj], to))
			return true;
	return false;
}

struct item *model_item(struct model *m, struct obj *ep, struct obj *o, int number)
{
	for (int i = 0; i < ep->nitems; i++)
		if (ep->items[i].obj == obj_index(m, o) && ep->items[i].number == number)
			return &ep->items[i];
	return NULL;
}

struct item *model_add_item(struct model *m, struct obj *ep, struct obj *o, int number)
{
	struct item *it;

	if (ep->nitems == ITEMS)
		return NULL;
	it = &ep->items[ep->nitems++];
	*it = (struct item){.obj = obj_index(m, o), .number = number};
	check_order(m, ep);
	for (int i = 0; o->kind == KIND_EPOLL && i < o->nitems; i++)
		if (o->items[i].may_repeat) {
			repeats_reach(m, o);
			break;
		}
	return it;
}
