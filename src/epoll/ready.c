/* SPDX-License-Identifier: MIT */
/*
 * The ready list in two halves, and the one sleeper who is told.
 *
 *   operation        who                    needs           lock-free
 *   item_queue       any producer           RCU or ep.mtx   yes, bounded by contention
 *   item_push        owner of QUEUED        RCU or ep.mtx   yes
 *   ep_help          any producer           RCU or ep.mtx   yes, wait-free
 *   ep_wake_one      anybody                valid ep        yes
 *   bell_over        waiter, 256th ringer   valid ep        yes
 *   ep_stand_in/down waiter that spins      valid ep        yes
 *   ready_splice     consumer               ep.mtx          waits for nobody
 *   item_unmark      consumer               ep.mtx          yes
 *
 * Argument
 *
 * 1. An item is pushed by the producer whose compare-and-swap set QUEUED, and by
 *    nobody else until a consumer clears QUEUED. A node is therefore never pushed
 *    while it is on a list.
 * 2. No event is lost. A producer changes the state, then looks at the mark; a
 *    consumer clears the mark, then samples the state. Each pair is separated by a
 *    full barrier (for the primary item the two are in one word and every access
 *    is a read-modify-write of it), so either the producer finds the mark clear and
 *    queues, or the consumer's sample comes after the producer's change.
 * 3. A returned write is visible (EP-RDY-18). A producer that finds QUEUED set must
 *    know that the item can be found. It can if pushed == pops: pops counts the
 *    times the item has been taken off, pushed is stored after the push with the
 *    value of pops at the mark. Otherwise some other producer stands between its
 *    mark and its push, perhaps preempted; the item is then marked as wanted and
 *    left in a help slot, where the next harvest finds it. If all slots are taken, that
 *    looks at every item that is wanted, and at no other, since an item whose producer
 *    is merely slow would be reported twice for one event. So no consumer and no producer
 *    ever waits for a preempted producer. What a harvest has found that way it keeps in a
 *    list of its own until the push has come; who helps such an item needs no slot, and
 *    only says that somebody is to look. So an item is in a slot once for each push that is
 *    half done, and all items are looked at once for more than PLX_HELPS pushes that
 *    threads were stopped in since the last harvest, however many harvests and writes
 *    there are until these go on. A helper sets WANTED, then finds KEPT or puts the item
 *    into a slot, then looks at ep.help; a harvest clears ep.help, then looks at the slots
 *    and at WANTED; a full barrier is between the steps on both sides. KEPT goes in one
 *    step only while WANTED is not set, or the item is linked: who has seen KEPT is
 *    looked at, or is found on the list. A store of pushed that comes very late (after the item
 *    has been taken off and queued again) overwrites a newer value with an older
 *    one; that only makes others help needlessly. 32 bits of pops make a false
 *    match need 2^32 removals within one such delay. The node of a primary item is its
 *    file's, and goes to the next primary item as it is: pops never goes back, so a store
 *    for the last item is one that comes late, too. Nobody else writes to the node for
 *    that item any more: its removal has waited for a producer that had marked it
 *    and not pushed it (item_claim), and one that had not fails, as EPOCH has moved.
 * 4. Order. The stack is taken whole and reversed: the order of arrival is the order
 *    of the successful pushes. Consumers never see a half-done push, since a node
 *    becomes reachable by the swap of the head alone.
 * 5. QUIET is set by a producer that found the item queued and pushed and has made its
 *    own wake, if the file has exactly this watch and the epoll is not itself watched:
 *    then a wake has nothing to do, whatever its key, until the item is taken off, the
 *    list changes, or the epoll becomes watched. (Its own wake first, and for this very
 *    stay on the list: the producer that pushed may be stopped before its own, and later
 *    ones look no further than QUIET.) Each of
 * these moves EPOCH and clears QUIET after it has happened; the producer read the word before it
 * looked. Either its compare-and-swap fails, or it saw the change, or its QUIET is cleared. An item
 * leaves the list before it does that; a watch that comes in between finds the list empty and does
 * it in its place (watch_link in file.c).
 * 6. No wake is lost. Producer: push, barrier, look for sleepers. Consumer: announce,
 *    barrier, look at the list (ep_announce in wait.c). As in the kernel, each event
 *    wakes one more sleeper, even if the one woken before has not run yet (EP-WAKE-03),
 *    so the bell counts: rings made since the last collection (base/ring.h). A producer rings
 *    if fewer rings are complete than there are sleepers; in the millisecond after a
 *    collection, when the epoll is busy, one ring at a time is enough. Whoever stops sleeping,
 *    for whatever reason, collects all and then harvests: of several rings only one may reach a
 *    sleeper of the kernel's epoll, and the others sleep on. A harvest that leaves something
 *    rings for the next.
 * 7. A waiter that spins or yields while others sleep stands in for a ring: it counts as a
 *    sleeper whose ring is complete, so that in a busy epoll nobody else is rung for what it
 *    is about to find. It ends as a ring ends: it sets both counts to zero and then looks at
 *    the list, in a harvest or after its announcement. A producer that found the counts
 *    unchanged has pushed before, so that look finds its push. Whoever stands in and does not
 *    get to run is like a ring whose sleeper does not: after a millisecond the epoll is not
 *    busy any more, and what yields may take is bounded besides (spin.c).
 * 8. A ring that nobody takes. Some hosts ring by a write to a descriptor, which stays there until
 *    somebody comes for it. A sleeper that leaves for another reason, an event of another kind, a
 *    signal, a time-out, leaves rings behind: some have been written, some are still to be, and of
 *    a producer that has only looked for sleepers not even the count is there. In the next wait
 *    such a ring looks like an event. Nobody waits for a producer, so that wait has to know what
 *    may be there. `rings` counts the rings begun up to the last collection, `heard` those that
 *    were read from the descriptor, which counts them as well. Of the rings that a collection
 *    finds at most one has reached its caller. If there are more, or if older ones were still
 *    owed, so that what has reached it may be one of these, `owed` becomes what `rings` is. Each
 *    ring that has neither been taken nor read is thus within `owed` while that is more than
 *    `heard`, or within the counts of the bell, which mean nothing else while nobody sleeps. Then a
 *    wait reads the descriptor before it asks: if this thread is the only one that waits, no ring
 *    that was written before the wait began is left (tests/model/hush.pml). Who sleeps is woken by
 *    what is written, and takes it: it is not read before his eyes, since another would have to be
 *    rung for in his place, out of turn. With several threads a collection that is not finished yet
 *    may hide one. A read may also find that all has been taken. A producer that is stopped before
 *    its write costs each wait a read in vain until it goes on.
 */
#include "epoll/engine.h"

#define BELL_BUSY_NS 1000000

/* Its stay on the list, if that is what the word was read in, can be found there. */
static bool item_pushed(struct plx_epitem *item)
{
	return plx_load_acq(&item->node->pushed) == plx_load(&item->node->pops);
}

uint64_t plx_item_stay(struct plx_epitem *item)
{
	uint64_t w = plx_load_acq(&item->node->mark);

	if (!(w & PLX_QUEUED) || !item_pushed(item))
		return 0;
	return w / PLX_EPOCH_ONE + 1;
}

void plx_item_try_quiet(struct plx_epitem *item, uint64_t stay)
{
	struct pollux_file *f = item->file;
	struct plx_watch *first;
	uint64_t w;

	if (!stay || !plx_item_is_primary(item))
		return;
	w = plx_load_acq(&f->word);
	if (w / PLX_EPOCH_ONE + 1 != stay ||
	    (w & (PLX_QUEUED | PLX_QUIET | PLX_SLOW)) != PLX_QUEUED)
		return;
	if (plx_load_acq(&item->w.dead) || !item_pushed(item))
		return;
	first = plx_load_acq(&f->watches);
	if (first != &item->w || plx_load(&first->next))
		return;
	if (plx_ep_watched(item->ep))
		return;
	PLX_DELAY(quiet_before_cas);
	plx_cas(&f->word, &w, w | PLX_QUIET);
}

/* Somebody is to look at the items in the slots, and at those that are kept. */
static void help_say(struct pollux_ep *ep)
{
	uint32_t none = PLX_HELP_NONE;

	/* Partner: plx_help_take. */
	plx_mb_after_rmw();
	(void)plx_cas(&ep->help, &none, PLX_HELP_SOME);
}

/* False if there is no room. */
static bool help_put(struct pollux_ep *ep, struct plx_epitem *item)
{
	for (int i = 0; i < PLX_HELPS; i++) {
		struct plx_epitem *there = plx_load(&ep->helps[i]);

		if (there == item || (!there && plx_cas(&ep->helps[i], &there, item)) ||
		    there == item)
			return true;
	}
	return false;
}

void plx_ep_help(struct plx_epitem *item)
{
	struct pollux_ep *ep = item->ep;
	uint8_t was = plx_or(&item->w.helped, PLX_HELP_EVER | PLX_HELP_WANTED);

	if (!(was & PLX_HELP_EVER) && !plx_refs_tryget(&ep->refs)) {
		/* The item was its last, and has been removed: nobody will look. */
		(void)plx_and(&item->w.helped, (uint8_t) ~(PLX_HELP_EVER | PLX_HELP_WANTED));
		return;
	}
	PLX_DELAY(help_before_slot);
	if ((was & PLX_HELP_KEPT) || help_put(ep, item)) {
		PLX_DELAY(help_before_said);
		help_say(ep);
	} else {
		(void)plx_xchg(&ep->help, PLX_HELP_ALL);
	}
}

static void help_keep(struct pollux_ep *ep, struct plx_epitem *item)
{
	plx_lockdep_held(&ep->mtx);
	if (plx_or(&item->w.helped, PLX_HELP_KEPT) & PLX_HELP_KEPT)
		return;
	item->w.kept_next = ep->kept;
	ep->kept = item;
}

void plx_ep_help_locked(struct plx_epitem *item)
{
	struct pollux_ep *ep = item->ep;

	if (!(plx_or(&item->w.helped, PLX_HELP_EVER | PLX_HELP_WANTED) & PLX_HELP_EVER) &&
	    !plx_refs_tryget(&ep->refs))
		PLX_INVARIANT(false, "an epoll lives while it has an item");
	help_keep(ep, item);
	help_say(ep);
}

/*
 * A slot may name an item that has been removed: RCU keeps its memory readable. One that is not
 * dead stays so while ep.mtx is held.
 */
uint32_t plx_help_take(struct pollux_ep *ep)
{
	uint32_t how;

	if (plx_likely(!plx_load(&ep->help)))
		return PLX_HELP_NONE;
	how = plx_xchg(&ep->help, PLX_HELP_NONE);
	/* Partner: help_say. */
	plx_mb_after_rmw();
	plx_rcu_read_lock();
	for (int i = 0; i < PLX_HELPS; i++) {
		struct plx_epitem *item = plx_load(&ep->helps[i]);

		if (!item)
			continue;
		item = plx_xchg(&ep->helps[i], NULL);
		if (item && !plx_load(&item->w.dead))
			help_keep(ep, item);
	}
	plx_rcu_read_unlock();
	return how;
}

void plx_help_walk(struct pollux_ep *ep)
{
	for (struct plx_list *l = ep->items.next; l != &ep->items; l = l->next) {
		PLX_DELAY(help_look);
		if (plx_load(&plx_all_item(l)->w.helped) & PLX_HELP_WANTED)
			help_keep(ep, plx_all_item(l));
	}
}

struct plx_epitem **plx_help_next(struct plx_epitem **at)
{
	struct plx_epitem *item = *at;
	bool linked = plx_item_linked(item);
	uint8_t was = plx_load(&item->w.helped);

	PLX_DELAY(help_look);
	if (!linked && (plx_load_acq(&item->node->mark) & PLX_QUEUED) && !item_pushed(item))
		return &item->w.kept_next;
	do {
		if (!linked && (was & PLX_HELP_WANTED))
			return &item->w.kept_next;
	} while (!plx_cas(&item->w.helped, &was,
			  (uint8_t)(was & ~(PLX_HELP_KEPT | PLX_HELP_WANTED))));
	*at = item->w.kept_next;
	return at;
}

void plx_help_forget(struct plx_epitem *item)
{
	struct plx_epitem **at = &item->ep->kept;

	while (*at != item)
		at = &(*at)->w.kept_next;
	*at = item->w.kept_next;
	(void)plx_and(&item->w.helped, (uint8_t)~PLX_HELP_KEPT);
}

/*
 * A hint names a file by what of its address is left without the bits of a line and those that all
 * files have in common, as a rule. Only ever prefetched.
 */
#define HINT_BITS 38
static uint32_t hint_of(const struct pollux_file *f)
{
	return (uint32_t)((uintptr_t)f >> 6);
}

/* near: any file. */
static void hint_fetch(const struct pollux_file *near, uint32_t hint)
{
	uintptr_t above = (uintptr_t)near >> HINT_BITS << HINT_BITS;

	plx_prefetch_write((const void *)(above | (uintptr_t)hint << 6));
}

/*
 * Before the swap, which needs the same line. Others may do so at once, and whatever
 * is hinted at may be gone: it costs a line that is fetched in vain.
 */
static void hint_leave(struct pollux_ep *ep, struct pollux_file *f)
{
	uint32_t n = plx_load(&ep->pushes);
	uint32_t *recent = &ep->recent[n % PLX_RECENT];

	plx_store(&f->hint, plx_load(recent));
	plx_store(recent, hint_of(f));
	plx_store(&ep->pushes, n + 1);
}

/*
 * The lines that producers have written are what a collection spends its time on, and each names
 * the next: so the last ones pushed, which stand beside the head, are asked for at once, and each
 * of them names one that was pushed PLX_RECENT before. Returns how many do: those that are left
 * name what has been collected earlier, whose lines producers may want.
 */
static int32_t hints_fetch(struct pollux_ep *ep, const struct pollux_file *near)
{
	uint32_t pushes = plx_load(&ep->pushes), n = pushes - ep->spliced;

	ep->spliced = pushes;
	for (uint32_t i = 1; i <= n && i <= PLX_RECENT; i++)
		hint_fetch(near, plx_load(&ep->recent[(pushes - i) % PLX_RECENT]));
	return (int32_t)(n - PLX_RECENT);
}

__thread const struct pollux_ep *plx_pushed_to;

void plx_item_push(struct plx_epitem *item, uint32_t pops)
{
	struct plx_node *node = item->node;
	struct pollux_ep *ep = item->ep;
	struct plx_epitem *head;

	if (plx_item_is_primary(item))
		hint_leave(ep, item->file);
	head = plx_load(&ep->incoming);
	PLX_DELAY(push_before_link);
	/* Where others push as well, who asks early only takes the line away from them. */
	plx_pushed_to = ep;
	plx_store(&node->next, head);
	while (!plx_cas(&ep->incoming, &head, item)) {
		plx_pushed_to = NULL;
		plx_store(&node->next, head);
	}
	PLX_DELAY(push_before_pushed);
	plx_store_rel(&node->pushed, pops);
	plx_stat(PLX_STAT_QUEUED);
}

bool plx_item_queue(struct plx_epitem *item)
{
	uint64_t w = plx_load_acq(&item->node->mark);

	for (;;) {
		uint32_t pops;

		/*
		 * Looked at after the mark: the remover of an item sets dead
		 * before it moves EPOCH (item_remove in remove.c).
		 */
		if (plx_load_acq(&item->w.dead))
			return false;
		pops = plx_load(&item->node->pops);
		if (w & PLX_QUEUED) {
			PLX_DELAY(queue_found_marked);
			if (plx_load_acq(&item->node->pushed) != pops)
				plx_ep_help(item);
			return false;
		}
		PLX_DELAY(queue_before_mark);
		if (plx_cas(&item->node->mark, &w, w | PLX_QUEUED)) {
			plx_item_push(item, pops);
			return true;
		}
	}
}

bool plx_item_queue_locked(struct plx_epitem *item)
{
	struct pollux_ep *ep = item->ep;
	uint64_t w = plx_load_acq(&item->node->mark);

	/* What producers have pushed before this comes first. */
	plx_ready_splice(ep);
	do {
		if (w & PLX_QUEUED) {
			/* On the list it is found; else its producer may not have pushed it yet. */
			if (!plx_item_linked(item) && !item_pushed(item))
				plx_ep_help_locked(item);
			return false;
		}
		/* Before the mark: who finds that must not find the list empty. */
		plx_store(&ep->has_ready, 1);
		PLX_DELAY(queue_before_mark);
	} while (!plx_cas(&item->node->mark, &w, w | PLX_QUEUED));
	plx_list_add_tail(&item->rd, &ep->ready);
	PLX_DELAY(push_before_pushed);
	plx_store_rel(&item->node->pushed, item->node->pops);
	return true;
}

void plx_ready_splice(struct pollux_ep *ep)
{
	struct plx_epitem *item;
	struct plx_list *at;
	int32_t hints;

	plx_lockdep_held(&ep->mtx);
	if (!plx_load(&ep->incoming))
		return;
	/* Before the stack is empty: plx_ready_empty must never see nothing. */
	plx_store(&ep->has_ready, 1);
	item = plx_xchg(&ep->incoming, NULL);
	/*
	 * The stack gives the newest first. Each goes in front of the one before, behind
	 * what was on the list already.
	 */
	at = ep->ready.prev;
	hints = hints_fetch(ep, item->file);
	while (item) {
		struct plx_epitem *next = plx_load(&item->node->next);

		if (!plx_item_is_primary(item))
			plx_prefetch_write(&item->file->word);
		else if (hints-- > 0)
			hint_fetch(item->file, plx_load(&item->file->hint));
		PLX_INVARIANT(!plx_item_linked(item), "an item is on the ready list once");
		plx_list_add(&item->rd, PLX_INJECTED(wrong_order) ? &ep->ready : at);
		item = next;
	}
}

void plx_ready_unlink(struct plx_epitem *item)
{
	plx_lockdep_held(&item->ep->mtx);
	if (!plx_item_linked(item))
		return;
	plx_list_del(&item->rd);
	item->rd.next = item->rd.prev = NULL;
}

void plx_item_unmark(struct plx_epitem *item)
{
	struct plx_node *node = item->node;
	uint64_t w;

	PLX_DELAY(unmark_before_mark);
	plx_store(&node->pops, node->pops + 1);
	w = plx_load(&node->mark);
	while (!plx_cas(&node->mark, &w, (w & ~(PLX_QUEUED | PLX_QUIET)) + PLX_EPOCH_ONE))
		;
	/* The poll that follows answers those who have asked for help, too. */
	if (plx_unlikely(plx_load(&item->w.helped) & PLX_HELP_WANTED))
		(void)plx_and(&item->w.helped, (uint8_t)~PLX_HELP_WANTED);
	PLX_DELAY(unmark_before_sample);
}

bool plx_item_remark(struct plx_epitem *item)
{
	struct plx_node *node = item->node;
	uint64_t w = plx_load(&node->mark);

	do {
		if (w & PLX_QUEUED)
			return false;
	} while (!plx_cas(&node->mark, &w, w | PLX_QUEUED));
	plx_store_rel(&node->pushed, node->pops);
	return true;
}

int64_t plx_ep_now(struct pollux_ep *ep)
{
	return ep->host.now(ep->host.arg);
}

/*
 * Whether a waiter has come for a ring so lately that it may be trusted to harvest for
 * all. Without this, every event of a busy epoll drags one more thread out of its sleep
 * to find nothing: with two or more waiters that costs more than the events.
 */
static bool bell_busy(struct pollux_ep *ep)
{
	return plx_ep_now(ep) - plx_load(&ep->collected_at) < BELL_BUSY_NS;
}

/* n rings have been begun that no collection will find any more; owed: some may not be taken. */
static void bell_over(struct pollux_ep *ep, uint32_t n, bool owed)
{
	uint64_t rings, old;

	/* Who sleeps on the word itself meets no ring that comes late. */
	if (!n || ep->host.park)
		return;
	rings = plx_xadd(&ep->rings, n) + n;
	old = plx_load(&ep->owed);
	/* What has been taken may be one of those that are owed, in the place of one of these. */
	if (!owed && plx_likely(old <= plx_load(&ep->heard)))
		return;
	while (old < rings && !plx_cas(&ep->owed, &old, rings))
		;
}

bool plx_ep_wake_one(struct pollux_ep *ep)
{
	uint32_t sleepers = plx_load(&ep->sleepers);
	uint64_t bell, was;

	if (plx_likely(!sleepers) || PLX_INJECTED(lost_wake))
		return false;
	PLX_DELAY(bell_before_begun);
	bell = plx_load(&ep->bell);
	do {
		uint32_t complete = plx_rings_complete(bell);

		if (complete >= sleepers || complete == plx_rings_complete(PLX_RINGS))
			return false;
		if (complete && bell_busy(ep))
			return true;
		was = bell;
	} while (!plx_ring_begin(&ep->bell, &bell));
	if (plx_unlikely(bell == was))
		bell_over(ep, 1, true);
	PLX_DELAY(bell_before_unpark);
	/* Read by those who decide for themselves how long to look. */
	if (ep->host.look_ns < 0)
		plx_spin_note_waker(&ep->spin);
	ep->host.unpark_one(ep->host.arg, plx_ring_word(&ep->bell));
	PLX_DELAY(bell_after_unpark);
	plx_ring_end(&ep->bell, bell);
	return true;
}

/* taken: so many rings have reached the caller. */
static bool bell_clear(struct pollux_ep *ep, uint32_t taken)
{
	uint64_t bell = plx_rings_collect(&ep->bell, false);
	uint32_t begun = bell & PLX_RINGS_BEGUN;

	if (!(bell & PLX_RINGS))
		return false;
	bell_over(ep, begun, begun > taken);
	return true;
}

void plx_bell_collect(struct pollux_ep *ep, uint32_t taken)
{
	if (bell_clear(ep, taken))
		plx_store(&ep->collected_at, ep->host.now(ep->host.arg));
}

void plx_bell_heard(struct pollux_ep *ep, uint64_t n)
{
	plx_xadd(&ep->heard, n);
}

void plx_ep_stand_in(struct pollux_ep *ep)
{
	plx_xadd(&ep->sleepers, 1);
	PLX_DELAY(stand_before_complete);
	plx_ring_end(&ep->bell, plx_load(&ep->bell));
	PLX_DELAY(stand_after_complete);
}

void plx_ep_stand_down(struct pollux_ep *ep, bool came)
{
	plx_xadd(&ep->sleepers, (uint32_t)-1);
	PLX_DELAY(stand_before_clear);
	if (bell_clear(ep, 0) && came)
		plx_store(&ep->collected_at, ep->host.now(ep->host.arg));
}
