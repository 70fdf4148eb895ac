/* SPDX-License-Identifier: MIT */
/*
 * Batches: the events of a thread's last wait in an epoll with POLLUX_EP_BATCHES. What frees
 * objects waits for those that may have events of them.
 *
 *   clock         atomic; only grows
 *   threads       batch_lock
 *   batch.ep      set by the thread, cleared by it or by the end of the epoll
 *   batch.opened  0, or the clock when it was opened; likewise
 *
 * Argument. A collection opens its batch with the epoll's mutex held, in which it looks at the
 * items. Who takes an item out holds it, too, and notes the clock afterwards, which moves by that.
 * If the collection was first, it has loaded no more than the note, and whoever looks at all
 * batches after the note finds it open, and no younger than the note, or it has ended. If it was
 * second, it has no event of the item. A batch that is opened after the note is younger, and nobody
 * waits for it. The model is tests/model/batch.pml. For descriptors of the kernel its mutex takes
 * the place of ours, and the batch is opened before the kernel is asked (wait/wait.c).
 */
#include "epoll/engine.h"

#include "base/key.h"
#include "base/sanitizer.h"

#define BATCHES 14

struct thread {
	struct thread *next;
	bool known;
	struct plx_batch b[BATCHES];
};

static plx_lock_t batch_lock;
static struct thread *threads;
static uint64_t batch_clock = 1;
static __thread struct thread me;
static struct plx_key batch_key;

#define EACH_BATCH(b, t) for (struct plx_batch *b = (t)->b; b < (t)->b + BATCHES; b++)

static void batch_close(struct plx_batch *b)
{
	plx_tsan_before(&plx_read_sections);
	PLX_DELAY(batch_before_close);
	plx_store_rel(&b->opened, 0);
	plx_store_rel(&b->ep, NULL);
}

static void thread_exit(void *p)
{
	struct thread **at = &threads;

	plx_tsan_before(&plx_read_sections);
	plx_lock(&batch_lock, PLX_RANK_BATCH);
	while (*at != p)
		at = &(*at)->next;
	*at = me.next;
	plx_unlock(&batch_lock, PLX_RANK_BATCH);
	me = (struct thread){0};
}

static bool thread_begin(void)
{
	if (pthread_setspecific(plx_key(&batch_key, thread_exit), &me))
		return false;
	plx_lock(&batch_lock, PLX_RANK_BATCH);
	me.next = threads;
	threads = &me;
	plx_unlock(&batch_lock, PLX_RANK_BATCH);
	me.known = true;
	return true;
}

struct plx_batch *plx_batch_of(const struct pollux_ep *ep)
{
	struct plx_batch *free = NULL;

	if (plx_unlikely(!me.known) && !thread_begin())
		return NULL;
	EACH_BATCH (b, &me) {
		if (plx_load(&b->ep) == ep)
			return b;
		if (!free && !plx_load(&b->ep))
			free = b;
	}
	return free;
}

void plx_batch_open(struct plx_batch *b, struct pollux_ep *ep)
{
	if (b->opened)
		return;
	plx_store(&b->ep, ep);
	plx_store(&b->opened, plx_load(&batch_clock));
	PLX_DELAY(batch_opened);
}

void plx_batch_end(const struct pollux_ep *ep)
{
	EACH_BATCH (b, &me)
		if (plx_load(&b->ep) == ep)
			batch_close(b);
}

void pollux_ep_batch_end(struct pollux_ep *ep)
{
	plx_batch_end(ep);
	plx_reclaim_room();
}

bool plx_batch_inside(void)
{
	EACH_BATCH (b, &me)
		if (plx_load(&b->opened))
			return true;
	return false;
}

uint64_t plx_batch_note(void)
{
	return plx_xadd(&batch_clock, 1);
}

bool plx_batch_over(uint64_t note)
{
	bool over = true;

	plx_lock(&batch_lock, PLX_RANK_BATCH);
	for (struct thread *t = threads; over && t; t = t->next) {
		EACH_BATCH (b, t) {
			uint64_t opened = plx_load_acq(&b->opened);

			over = over && (!opened || opened > note);
		}
	}
	plx_unlock(&batch_lock, PLX_RANK_BATCH);
	return over;
}

int plx_batches_open(const struct pollux_ep *ep)
{
	int n = 0;

	if (!plx_glance(&batch_lock))
		return -1;
	for (struct thread *t = threads; t; t = t->next)
		EACH_BATCH (b, t)
			n += plx_load(&b->ep) == ep;
	plx_glance_end(&batch_lock);
	return n;
}

void plx_batches_forget(const struct pollux_ep *ep)
{
	plx_lock(&batch_lock, PLX_RANK_BATCH);
	for (struct thread *t = threads; t; t = t->next)
		EACH_BATCH (b, t)
			if (plx_load(&b->ep) == ep)
				batch_close(b);
	plx_unlock(&batch_lock, PLX_RANK_BATCH);
}

PLX_CHILD_CODE void plx_batches_after_fork_child(void)
{
	plx_lock_reset(&batch_lock);
	if (!threads)
		return;
	threads = me.known ? &me : NULL;
	me.next = NULL;
}
