/* SPDX-License-Identifier: MIT */
/*
 * The choice of steps. Most of it is what a program would do with what it has open; a
 * small part are errors, as a sequence of errors shows little.
 */
#include "differential.h"

int pick_slot(struct gen *g, uint32_t kinds)
{
	int8_t found[SLOTS];
	int n = 0;

	for (int i = 0; i < SLOTS; i++) {
		struct obj *o = model_obj(&g->m, i);

		if (o && (KINDS(o->kind) & kinds))
			found[n++] = i;
	}
	return n ? found[below(g, n)] : NO_SLOT;
}

int pick_slot_or_bad(struct gen *g, uint32_t kinds)
{
	switch (below(g, 60)) {
	case 0:
		return -1 - (int)below(g, NONE_PLAIN);
	case 1:
		return below(g, SLOTS);
	case 2:
		return pick_slot(g, ANY_KIND);
	default:
		return pick_slot(g, kinds);
	}
}

int pick_slot_or_hidden(struct gen *g, uint32_t kinds)
{
	return rare(g, 100) ? -1 - NONE_PLAIN - (int)below(g, NONE_HIDDEN)
			    : pick_slot_or_bad(g, kinds);
}

int pick_free(struct gen *g)
{
	int8_t found[SLOTS];
	int n = 0;

	for (int i = 0; i < SLOTS; i++)
		if (!model_obj(&g->m, i))
			found[n++] = i;
	return n ? found[below(g, n)] : NO_SLOT;
}

int pick_ptr(struct gen *g)
{
	return rare(g, 50) ? (int)below(g, PTR_COUNT) : PTR_GOOD;
}

static int open_slots(struct gen *g)
{
	int n = 0;

	for (int i = 0; i < SLOTS; i++)
		n += model_obj(&g->m, i) != NULL;
	return n;
}

/* Its place in the table. */
static int pick_op(struct gen *g)
{
	enum profile p = g->m.profile;
	uint32_t total = 0, at;
	int i = 0;

	for (int j = 0; j < nops; j++)
		total += ops[j]->weight[p];
	for (at = below(g, total); at >= ops[i]->weight[p]; i++)
		at -= ops[i]->weight[p];
	return i;
}

/* A sequence begins with something to work on. */
static bool creates(const struct op *op)
{
	return !strncmp(op->name, "new_", 4);
}

static void append(struct gen *g, struct step *steps, int *n, const char *name, struct step s)
{
	while (strcmp(ops[s.op]->name, name))
		s.op++;
	s.b = s.c = NO_SLOT;
	model_apply(&g->m, &s);
	steps[(*n)++] = s;
}

/* What is left in the epolls, eventfds and pipes at the end. */
static void look_at_rest(struct gen *g, struct step *steps, int *n)
{
	g->m.me = &g->m.procs[0];
	for (int i = 0; i < SLOTS; i++)
		if (model_obj_kind(&g->m, i, KIND_EPOLL))
			append(g, steps, n, "wait", (struct step){.a = i, .n = EVENTS});
	for (int i = 0; i < SLOTS; i++)
		if (model_obj_kind(&g->m, i, KIND_EVENTFD))
			append(g, steps, n, "read", (struct step){.a = i, .n = 8});
	for (int i = 0; i < SLOTS; i++)
		if (model_obj_kind(&g->m, i, KIND_PIPE_R))
			append(g, steps, n, "read", (struct step){.a = i, .n = 100000});
}

int generate(struct gen *g, enum profile profile, uint64_t seed, struct step *steps)
{
	int want, few, n = 0;

	g->rng = seed * 0xd1342543de82ef95ull + profile;
	model_init(&g->m, profile);
	want = 20 + below(g, below(g, 4) ? 100 : STEPS - 21);
	few = 3 + below(g, 8);
	for (int tries = 0; n < want && tries < want * 20; tries++) {
		int open = open_slots(g);
		struct step s = {0};
		const struct op *op;

		s.a = s.b = s.c = NO_SLOT;
		/* Steps of the child, while there is one. */
		s.proc = g->m.procs[1].alive && chance(g, 45);
		g->m.me = &g->m.procs[s.proc];
		s.op = pick_op(g);
		op = ops[s.op];
		if (creates(op) ? open > few && chance(g, 80) : open < few && chance(g, 60))
			continue;
		if (!op->make(g, &s))
			continue;
		model_apply(&g->m, &s);
		steps[n++] = s;
	}
	look_at_rest(g, steps, &n);
	return n;
}
