/* SPDX-License-Identifier: MIT */
/*
 * Who has to wake a sleeper says so in a word first, so that others need not do it as well.
 *
 *   bits 0 to 7   rings that have begun since the last collection; a host may sleep on them
 *   bits 8 to 15  of those, the complete ones
 *   above         collections
 *
 * Argument. Who rings counts the ring as begun, rings, and counts it as complete. He may be stopped
 * at any step, and nobody waits for him: only complete rings keep others from ringing, so whoever
 * finds one begun makes it again. Who stops sleeping collects, by a read-modify-write that sets
 * both counts to zero, and looks at what he is woken for afterwards. Who rings has made that ready
 * before he looks at the counts, with a full barrier in between. So if he finds enough rings
 * complete, a look that follows finds what he has made.
 *
 * A ring that is late is counted as complete only if nobody has collected since it was begun: its
 * sleeper may be up, have found nothing, and sleep again. A flag of three states, begun and made,
 * cannot tell that from a ring of another that has begun since and is stopped.
 *
 * The models are no_lost_wake.pml, of an epoll (ready.c), and files_poll.pml, of one sleeper.
 */
#pragma once

#include "base/atomic.h"

#define PLX_RINGS_BEGUN 0xffull
#define PLX_RINGS_COMPLETE 0xff00ull
#define PLX_RINGS (PLX_RINGS_BEGUN | PLX_RINGS_COMPLETE)
#define PLX_RING_COLLECTION 0x10000ull

static inline uint32_t plx_rings_complete(uint64_t w)
{
	return (uint32_t)(w & PLX_RINGS_COMPLETE) / 0x100;
}

/* The half that a host may sleep on. */
static inline uint32_t *plx_ring_word(uint64_t *word)
{
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half comes first");
	return (uint32_t *)word;
}

/* One more begins, if *w is what the word is; it is that afterwards. A full count stays full. */
static inline bool plx_ring_begin(uint64_t *word, uint64_t *w)
{
	if (plx_unlikely((*w & PLX_RINGS_BEGUN) == PLX_RINGS_BEGUN))
		return true;
	if (!plx_cas(word, w, *w + 1))
		return false;
	*w += 1;
	return true;
}

/* w: the word when it began. */
static inline void plx_ring_end(uint64_t *word, uint64_t w)
{
	uint64_t now = plx_load(word);

	while (now / PLX_RING_COLLECTION == w / PLX_RING_COLLECTION &&
	       (now & PLX_RINGS_COMPLETE) != PLX_RINGS_COMPLETE &&
	       !plx_cas(word, &now, now + 0x100))
		;
}

/* What the word was. turn: it changes in any case, for who sleeps on it. */
static inline uint64_t plx_rings_collect(uint64_t *word, bool turn)
{
	uint64_t w = plx_load(word);

	while (((w & PLX_RINGS) || turn) &&
	       !plx_cas(word, &w, (w & ~PLX_RINGS) + PLX_RING_COLLECTION))
		;
	return w;
}
