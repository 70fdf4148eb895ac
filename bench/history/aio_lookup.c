/* SPDX-License-Identifier: MIT */
#include "aio_lookup.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/delay.h"
#include "base/lock.h"
#include "rcu/rcu.h"

#define DEAD (1ull << 63)
#define CALL (1ull << 32)

static plx_lock_t lock;

void old_put(struct old_context *c)
{
	plx_xadd(&c->state, -CALL);
}

/* In a read section. */
static struct old_context *enter(struct old_context *c)
{
	PLX_DELAY(old_context_found);
	if (c && plx_unlikely(plx_xadd(&c->state, CALL) & DEAD)) {
		old_put(c);
		c = NULL;
	}
	return c;
}

/* --- the list: the newest first ----------------------------------------------------------- */

static struct old_context *list;

struct old_context *list_get(unsigned long user_id)
{
	struct old_context *c;

	plx_rcu_read_lock();
	c = plx_load_acq(&list);
	while (c && c->user_id != user_id)
		c = plx_load_acq(&c->next);
	c = enter(c);
	plx_rcu_read_unlock();
	return c;
}

bool list_add(struct old_context *c)
{
	plx_lock(&lock, PLX_RANK_AIO_TABLE);
	c->next = list;
	plx_store_rel(&list, c);
	plx_unlock(&lock, PLX_RANK_AIO_TABLE);
	return true;
}

void list_del(struct old_context *c)
{
	struct old_context **at = &list;

	plx_lock(&lock, PLX_RANK_AIO_TABLE);
	plx_or(&c->state, DEAD);
	while (*at != c)
		at = &(*at)->next;
	plx_store_rel(at, c->next);
	plx_unlock(&lock, PLX_RANK_AIO_TABLE);
}

/* --- the radix tree: six bits of the page's number at each level ------------------------------ */

#define BITS 6
#define FAN (1u << BITS)
#define PAGE_BITS 12

struct node {
	/* Levels below this one; those of level 0 hold contexts. */
	unsigned int level;
	void *child[FAN];
};

static struct node *radix;

static unsigned int digit(unsigned long key, unsigned int level)
{
	return (unsigned int)(key >> (level * BITS)) & (FAN - 1);
}

/* Whether the tree is as high as the key is long. */
static bool high_enough(const struct node *top, unsigned long key)
{
	unsigned int bits = (top->level + 1) * BITS;

	return bits >= 64 || !(key >> bits);
}

struct old_context *radix_get(unsigned long user_id)
{
	unsigned long key = user_id >> PAGE_BITS;
	struct old_context *c = NULL;
	struct node *n;

	plx_rcu_read_lock();
	n = plx_load_acq(&radix);
	if (n && !high_enough(n, key))
		n = NULL;
	while (n && n->level)
		n = plx_load_acq(&n->child[digit(key, n->level)]);
	if (n)
		c = plx_load_acq(&n->child[digit(key, 0)]);
	if (c && c->user_id != user_id)
		c = NULL;
	c = enter(c);
	plx_rcu_read_unlock();
	return c;
}

static struct node *node_new(unsigned int level)
{
	struct node *n = calloc(1, sizeof(*n));

	if (n)
		n->level = level;
	return n;
}

bool radix_add(struct old_context *c)
{
	unsigned long key = c->user_id >> PAGE_BITS;
	struct node *n, *below;
	bool ok = false;

	plx_lock(&lock, PLX_RANK_AIO_TABLE);
	if (!radix)
		plx_store_rel(&radix, node_new(0));
	while (radix && !high_enough(radix, key)) {
		n = node_new(radix->level + 1);
		if (!n)
			goto out;
		n->child[0] = radix;
		plx_store_rel(&radix, n);
	}
	for (n = radix; n && n->level; n = below) {
		below = n->child[digit(key, n->level)];
		if (!below) {
			below = node_new(n->level - 1);
			plx_store_rel(&n->child[digit(key, n->level)], below);
		}
	}
	if (n) {
		plx_store_rel(&n->child[digit(key, 0)], c);
		ok = true;
	}
out:
	plx_unlock(&lock, PLX_RANK_AIO_TABLE);
	return ok;
}

/* Nodes that have become empty stay for the next one. */
void radix_del(struct old_context *c)
{
	unsigned long key = c->user_id >> PAGE_BITS;
	struct node *n;

	plx_lock(&lock, PLX_RANK_AIO_TABLE);
	plx_or(&c->state, DEAD);
	for (n = radix; n->level; n = n->child[digit(key, n->level)])
		;
	plx_store_rel(&n->child[digit(key, 0)], NULL);
	plx_unlock(&lock, PLX_RANK_AIO_TABLE);
}
