/* SPDX-License-Identifier: MIT */
/*
 * Descriptors before anything is cached.
 *
 * Until a process has something to cache it is not prepared (plx_active): no handler of ours
 * stands before the program's, no thread is known to RCU, and no descriptor has an entry in the
 * table. Calls are the program's own. What is noted beside them is what it takes to go on from
 * there: which numbers are epolls, and who is in the middle of a call.
 *
 *   note.word   atomic; what the number is, as long as nothing has been done with it that cached
 *               objects do not have; 0: nothing, or the kernel's for good
 *   call        written by its thread, without barriers; read by others after one in all threads
 *
 * Argument. (1) Before it is prepared a handler of the program may run at any instruction here, and
 * leave by a jump: there is no lock, and each step stands for itself. What a jump leaves is a call
 * that seems to go on: what it names is never cached. (2) Who prepares makes entries for what is
 * noted, and takes the notes back then. Who is about to do something that ends a note takes it back
 * as well, and looks at the table after that: one of the two sees the other, so there is no entry
 * of a number that has been closed. (3) A call that may sleep says so, and looks whether the
 * process is prepared; who prepares says that, makes a barrier in all threads, and looks at the
 * calls. So a call that has not been seen sees the table. (4) One that has been seen may sleep in
 * an epoll without being announced, or in a poll without being counted. Nothing is cached in that
 * epoll before it is over (plx_cold_busy). (5) A fork ends all notes, since it shares what they
 * mean. One past us is found when the process prepares: it is not the one that has made them.
 */
#ifndef PLX_CACHE_COLD_H
#define PLX_CACHE_COLD_H

#include "cache/posix.h"

/* --- notes (note.c) ------------------------------------------------------------------------ */

enum { PLX_COLD_NOTHING, PLX_COLD_NOTED, PLX_COLD_OVER };
/* Whether anything has been noted, or the process is prepared. */
extern uint32_t plx_cold;

static inline bool plx_cold_any(void)
{
	return plx_unlikely(plx_load_acq(&plx_cold) == PLX_COLD_NOTED);
}

/* Higher numbers are not noted. */
#define PLX_COLD_NOTES 1024
struct plx_cold_note {
	uint64_t word;
};
extern struct plx_cold_note plx_cold_notes[PLX_COLD_NOTES];

static inline bool plx_cold_noted(int fd)
{
	return plx_cold_any() && (unsigned int)fd < PLX_COLD_NOTES &&
	       plx_load(&plx_cold_notes[fd].word);
}

enum plx_cold_kind { PLX_COLD_NONE, PLX_COLD_EPOLL };
/* The kernel has made fd, beginning when plx_px_forks was `forks`. */
void plx_cold_note(int fd, enum plx_cold_kind kind, uint32_t forks);
/* The kernel has made n of fd, or has not: an epoll of which the note was `word` has both numbers.
 */
void plx_cold_dup(int fd, int n, uint64_t word);
/*
 * The number is about to mean nothing, or to be used in a way that ends adoption: what the note
 * was. The table has to be looked at after this.
 */
uint64_t plx_cold_end(int fd);
/* All notes end; those of close-on-exec descriptors stay if that is asked for. */
void plx_cold_end_all(bool but_cloexec);
/* epfd is about to watch fd. */
void plx_cold_add(int epfd, int fd);

/* --- calls that are under way (cold.c) ----------------------------------------------------- */

enum plx_cold_what {
	/* fd is an epoll. */
	PLX_COLD_WAIT = 1,
	/* sets[0] has n of them. */
	PLX_COLD_POLL,
	/* Up to n in the sets. */
	PLX_COLD_SELECT,
	/* The kernel's action for a signal. */
	PLX_COLD_ACTION,
};

struct plx_cold_call {
	uint32_t what;
	int fd;
	uint64_t n;
	const void *sets[3];
	/* What the number meant when the process was prepared. */
	struct pollux_file *file;
};

/* From here to plx_cold_leave a call is under way, which the caller describes in what `call` has.
 */
struct plx_cold_call *plx_cold_enter(const struct plx_cold_call *call);
void plx_cold_leave(struct plx_cold_call *const *call);

#define PLX_COLD_ENTER(...)                                                                        \
	__attribute__((cleanup(plx_cold_leave), unused)) struct plx_cold_call *const cold_call_ =  \
		plx_cold_enter(__VA_ARGS__)
#define PLX_COLD_CALL(...) PLX_COLD_ENTER(&(const struct plx_cold_call){__VA_ARGS__})

/* --- preparing ----------------------------------------------------------------------------- */

/* In the constructor, and in the child of a fork that we have seen. */
void plx_cold_born(void);
/* The process, if it is known; it may have been forked past us since. */
uint32_t plx_cold_process(void);
/* Whether this is the process that has made the notes. */
bool plx_cold_own(void);
/* A barrier in all threads; false if there is none to be had. */
bool plx_cold_barrier(void);
/* After such a barrier: waits until no change of a handler is under way; not for ever. */
bool plx_cold_await_actions(void);
/* Entries are about to be made: until plx_cold_over all is busy. */
void plx_cold_begins(void);
/* note.c: entries for all that is noted. */
void plx_cold_found(void);
/* After it is prepared for all to see: who is in the middle of a call now is in one of before. */
void plx_cold_over(void);
/* Whether a call that began before that concerns the epoll f. */
bool plx_cold_busy(struct pollux_file *f);

#endif
