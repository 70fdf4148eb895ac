/* SPDX-License-Identifier: MIT */
/*
 * Descriptors before anything is cached.
 *
 * Until a process has something to cache it is not prepared: no handler of ours stands before the
 * program's, no thread is known to RCU, and no descriptor has an entry in the table. Calls are the
 * program's own. Noted is what it takes to go on from there: which numbers are epolls, eventfds and
 * timers that may be cached, how often those are used, and who is in the middle of a call. What an
 * epoll watches is asked of the kernel then (fdinfo).
 *
 *   note.word   atomic; 0: nothing, or the kernel's for good
 *   call        written by its thread, without barriers; read by others after one in all threads
 *
 * Argument. (1) Before it is prepared a handler of the program may run at any instruction here, and
 * leave by a jump: there is no lock, and each step stands for itself. What a jump leaves is a call
 * that seems to go on: while it does, the process is not prepared, or what it names not cached. (2)
 * A call that changes what has to be known (an epoll_ctl, a read or write, the end of a note) says
 * so, and looks whether somebody prepares; who prepares says so, makes a barrier in all threads,
 * and looks for such calls. One of the two sees the other. So there is no change while entries are
 * made for what is noted; who comes in between waits, and finds an entry. (3) A call that may sleep
 * says so, and looks whether the process is prepared; who has prepared it says so, makes a barrier,
 * and looks at the calls. One that has been seen may sleep in an epoll without being announced, or
 * in a poll without being counted. Nothing that it concerns is cached before it is over
 * (plx_cold_busy). (4) A fork ends all notes, since it shares what they mean. One past us is found
 * when the process prepares: it is not the one that has made them. (5) What may be used by somebody
 * whom we do not see ends its note; if that is an epoll, all notes, as it may watch any of them.
 */
#pragma once

#include "base/inside.h"
#include "cache/posix.h"

/* Whether anything has been noted; whether entries are made just now, or have been. */
enum { PLX_COLD_NOTHING, PLX_COLD_NOTED, PLX_COLD_PREPARING, PLX_COLD_OVER };
extern uint32_t plx_cold;

static inline bool plx_cold_any(void)
{
	return plx_unlikely(plx_load_acq(&plx_cold) - PLX_COLD_NOTED < 2u);
}

/* --- notes (note.c) ------------------------------------------------------------------------ */

/* Higher numbers are not noted. */
#define PLX_COLD_NOTES 4096
struct plx_cold_note {
	uint64_t word;
	/* Approximate: writes, or settings. */
	uint32_t uses;
	/* An epoll had the number, which a poll that sleeps may still mean. */
	uint32_t closed;
};
extern struct plx_cold_note plx_cold_notes[PLX_COLD_NOTES];
/* One more than the highest number that has been noted. */
extern uint32_t plx_cold_end;

static inline bool plx_cold_noted(int fd)
{
	return plx_cold_any() && (unsigned int)fd < PLX_COLD_NOTES &&
	       (plx_load(&plx_cold_notes[fd].word) || plx_load(&plx_cold) == PLX_COLD_PREPARING);
}

static inline uint64_t plx_cold_word(int fd)
{
	return (unsigned int)fd < PLX_COLD_NOTES ? plx_load_acq(&plx_cold_notes[fd].word) : 0;
}

/* PLX_COLD_BLOCKS beside one of the others: the first use that may sleep ends the note. */
enum { PLX_COLD_EPOLL = 1, PLX_COLD_EVENTFD, PLX_COLD_TIMER, PLX_COLD_BLOCKS };
/* When the kernel begins to make something: forks and changes (table.h). */
struct plx_cold_since {
	uint32_t forks, changes;
};
static inline struct plx_cold_since plx_cold_since(void)
{
	return (struct plx_cold_since){.forks = plx_load(&plx_px_forks), .changes = plx_changes()};
}
/* The kernel has made fd, which is returned, since then. */
int plx_cold_made(int fd, uint32_t kind, struct plx_cold_since since);
/* An epoll gets a second number: fcntl(fd, cmd, from) by real; PLX_PASS if that has to be done
 * anew. */
int plx_cold_dup(int fd, int cmd, long from, int (*real)(int, int, long));
/* The number is about to mean nothing, or something else. The table is to be looked at after it. */
void plx_cold_closes(int fd);
/* The same: it is about to be used in a way that ends adoption. */
void plx_cold_leaves(int fd);
/* The notes end of what a new program gets; those of all, if there is an epoll, or by NULL. */
void plx_cold_end_all(bool (*survives)(int fd));
/* The same for epoll_ctl: real, or PLX_PASS. */
int plx_cold_ctl(int epfd, int op, int fd, struct epoll_event *ev,
		 int (*real)(int, int, int, struct epoll_event *));
/* Before a use: whether fd is such a thing, which it is not any more if it blocks. */
bool plx_cold_uses(int fd, uint32_t kind);
/* A write, or setting, of fd is over. If there are many the next wait prepares the process. */
void plx_cold_used(int fd);
extern uint32_t plx_cold_wanted;
/* Files that are not noted are registered by a ring (preload/uring.c). */
extern uint32_t plx_cold_rings;
/* Whether it is noted, and so may be cached some time. */
bool plx_cold_serves(int fd);
/* A call that says whether it blocks has returned r. */
int plx_cold_blocking(int fd, int r, bool nonblock);

/* --- calls that are under way (cold.c) ----------------------------------------------------- */

enum plx_cold_what {
	/* n is what was noted of the epoll. */
	PLX_COLD_WAIT = 1,
	/* sets[0] has n of them. */
	PLX_COLD_POLL,
	/* Up to n in the sets. */
	PLX_COLD_SELECT,
	/* May sleep in whatever there is. */
	PLX_COLD_SLEEP,
	/* Does not sleep. */
	PLX_COLD_CHANGE,
};

struct plx_cold_call {
	uint32_t what;
	uint64_t n;
	const void *sets[3];
	/* What became of the epoll when the process was prepared. */
	struct pollux_file *file;
};
/* It was closed while the wait slept, and may watch any of the others. */
#define PLX_COLD_CLOSED ((struct pollux_file *)1)

/* Of a thread, or of those that have had the same memory, one after the other. */
struct plx_cold_thread {
	const void *owner;
	uint32_t process;
	struct plx_cold_call call;
};
extern __thread struct plx_cold_thread *plx_cold_mine;
/* The process, if it is known; it may have been forked past us since. */
extern uint32_t plx_cold_process;
/* Where there is no place for it. */
struct plx_cold_call *plx_cold_enter_slow(uint32_t what, uint64_t n, const void *set,
					  const void *set1, const void *set2);
void plx_cold_leave_slow(void);
extern struct plx_cold_call plx_cold_others;

/* What is in a call, one by one: in memory the compiler would make it anew each time. */
static inline struct plx_cold_call *plx_cold_say(struct plx_cold_thread *t, uint32_t what,
						 uint64_t n, const void *set, const void *set1,
						 const void *set2)
{
	plx_store(&t->process, plx_cold_process);
	plx_store(&t->call.what, what);
	/* A handler that comes now does not take it. */
	plx_compiler_barrier();
	plx_store(&t->call.n, n);
	if (what == PLX_COLD_POLL || what == PLX_COLD_SELECT) {
		plx_store(&t->call.sets[0], set);
		plx_store(&t->call.sets[1], set1);
		plx_store(&t->call.sets[2], set2);
	}
	/* Partner: barrier in cold.c. */
	plx_compiler_barrier();
	return &t->call;
}

/* From here to plx_cold_leave a call is under way, which is described by what is in c. */
static inline struct plx_cold_call *plx_cold_enter(struct plx_cold_call c)
{
	struct plx_cold_thread *t = plx_cold_mine;

	return plx_likely(t && !plx_load(&t->call.what))
		       ? plx_cold_say(t, c.what, c.n, c.sets[0], c.sets[1], c.sets[2])
		       : plx_cold_enter_slow(c.what, c.n, c.sets[0], c.sets[1], c.sets[2]);
}

static inline void plx_cold_leave(struct plx_cold_call *const *call)
{
	if (plx_unlikely(*call == &plx_cold_others))
		plx_cold_leave_slow();
	else
		plx_store_rel(&(*call)->what, 0);
}

#define PLX_COLD_CALL(...)                                                                         \
	__attribute__((cleanup(plx_cold_leave), unused)) struct plx_cold_call *const cold_call_ =  \
		plx_cold_enter((struct plx_cold_call){__VA_ARGS__})

/* Returns the result of the program's own call, unless the process is prepared. */
#define PLX_COLD_SLEEPS(call, ...)                                                                 \
	do {                                                                                       \
		PLX_COLD_CALL(__VA_ARGS__);                                                        \
		if (plx_cold_any())                                                                \
			return (call);                                                             \
	} while (0)
#define PLX_COLD_CHANGES(call)                                                                     \
	while (plx_cold_any()) {                                                                   \
		{                                                                                  \
			PLX_COLD_CALL(.what = PLX_COLD_CHANGE);                                    \
			if (plx_load_acq(&plx_cold) == PLX_COLD_NOTED)                             \
				return (call);                                                     \
		}                                                                                  \
		plx_cold_await();                                                                  \
	}
/* Until nobody prepares just now. */
void plx_cold_await(void);

/* --- preparing ----------------------------------------------------------------------------- */

/* In the constructor, and in the child of a fork that we have seen. */
void plx_cold_born(void);
/* By one at a time, without signals. False: nothing can be prepared now. */
bool plx_cold_begin(void);
/* note.c: calls each with the lines of a file of /proc; false if the kernel does not say. */
bool plx_cold_lines(const char *path, void (*each)(void *arg, const char *line), void *arg);
/* note.c: entries for all that is noted. */
void plx_cold_found(void);
/* The next call that is under way in this process, from the i-th on. */
struct plx_cold_call *plx_cold_next(int *i);
/* After the process is prepared: it is, for all to see; then its calls are known. False: never. */
bool plx_cold_ends(void);
void plx_cold_seen(void);
/* note.c: both. */
void plx_cold_over(void);
/* Whether a call that began before that concerns f. */
bool plx_cold_busy(struct pollux_file *f);
