/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of calls, run on the kernel and on Pollux, and their results compared.
 *
 *   gen.c    chooses the steps of a sequence from nothing but its number
 *   model.c  what a sequence is believed to have open: steers the choice, and tells which
 *            results are determined
 *   ops_*.c  the kinds of steps
 *   log.c    results, as a digest or as text
 *   random.c the numbers that the choice is made from
 *   main.c   runs sequences; lockstep.py runs this program twice and compares
 *   aio.c    the same for Linux AIO: a program of its own
 *
 * A step names descriptors by slots, not by numbers, so that a sequence still makes sense
 * when steps are taken out of it. A slot keeps its number when that is closed: the stale
 * number, perhaps in use again for something else, is a good operand, too.
 *
 * The model decides nothing about what is right, that is the kernel's part. If it is wrong
 * about what is open, steps are merely less interesting. It must be right about three
 * things only: a call that would block for ever is left out (step.skip), results whose
 * order Pollux does not promise are compared as sets (step.any_order), and so it must know which
 * edges Pollux may report once more.
 *
 * An object that leaves Pollux writes its count to the kernel's object, and an edge-triggered
 * registration of it may report once more what was collected before. So everything in such an
 * epoll is collected before the next step (model_settle, settle_first in run.c): what Pollux may
 * repeat goes into the log as a number of its own (log_may), of which lockstep.py wants at least as
 * many as the kernel has, and at most one more for each such registration. After that both sides
 * are in the same state again.
 */
#ifndef TESTS_DIFFERENTIAL_DIFFERENTIAL_H
#define TESTS_DIFFERENTIAL_DIFFERENTIAL_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Made with syscall() where the machine has the call itself; aarch64 has only what took its place.
 * Each with its text in a program.
 */
#ifdef SYS_epoll_wait
#define RAW_EPOLL_WAIT(ep, ev, n, ms) syscall(SYS_epoll_wait, ep, ev, n, ms)
#define RAW_EPOLL_WAIT_TEXT "syscall(SYS_epoll_wait, %s, %s, %d, %s)"
#define RAW_POLL(set, n, ms) syscall(SYS_poll, set, n, ms)
#define RAW_DUP2(from, to) syscall(SYS_dup2, from, to)
#define RAW_DUP2_TEXT "syscall(SYS_dup2, %s, %s)"
#else
#define RAW_EPOLL_WAIT(ep, ev, n, ms) syscall(SYS_epoll_pwait, ep, ev, n, ms, NULL, 8)
#define RAW_EPOLL_WAIT_TEXT "syscall(SYS_epoll_pwait, %s, %s, %d, %s, NULL, 8)"
#define RAW_POLL(set, n, ms)                                                                       \
	syscall(SYS_ppoll, set, n, (ms) < 0 ? NULL : &(struct timespec){0}, NULL, 8)
#define RAW_DUP2(from, to) syscall(SYS_dup3, from, to, 0)
#define RAW_DUP2_TEXT "syscall(SYS_dup3, %s, %s, 0)"
#endif

#define SLOTS 28
/* Descriptor numbers that a sequence may have: small ones, and some far up. */
#define FIRST_NUMBER 3
#define LOW_NUMBERS 60
#define HIGH_NUMBER 4000
#define HIGH_NUMBERS 4
/* Where received descriptors go. */
#define RECEIVED 6000
#define RECEIVED_NUMBERS 4
#define LAST_NUMBER (RECEIVED + RECEIVED_NUMBERS)
#define NUMBERS (LOW_NUMBERS + HIGH_NUMBERS + RECEIVED_NUMBERS)
#define OBJECTS 128
#define ITEMS 48
#define STEPS 256
#define EVENTS 64
#define PROCS 2

enum profile {
	/* What Pollux serves in process, and calls that leave it there. */
	PROFILE_INPROC,
	/* With files of the kernel, and ways out. */
	PROFILE_MIXED,
	PROFILE_NESTED,
	PROFILE_FORK,
	PROFILE_COUNT,
};

enum kind {
	KIND_NONE,
	KIND_EPOLL,
	KIND_EVENTFD,
	KIND_PIPE_R,
	KIND_PIPE_W,
	KIND_TIMER,
	KIND_SOCKET,
	/* A file without a poll operation. */
	KIND_PLAIN,
};

#define KINDS(k) (1u << (k))
#define ANY_KIND (~0u)
#define POLLABLE (ANY_KIND & ~KINDS(KIND_PLAIN) & ~KINDS(KIND_NONE))
#define STREAMS (KINDS(KIND_PIPE_R) | KINDS(KIND_PIPE_W) | KINDS(KIND_SOCKET))

/* Where an object's state is believed to be. */
enum where {
	AT_KERNEL,
	AT_EITHER,
	AT_POLLUX,
};

struct item {
	int16_t obj;
	int16_t number;
	uint32_t events;
	uint64_t data;
	/* Its object may have left since the epoll was last settled. */
	bool may_repeat;
};

/* What is to be settled: of the epoll at this number, events with this data. */
struct settled {
	int number;
	/* First a poll of the epoll, by which it leaves; it has no data. */
	bool leaves;
	/* Nothing in it may be repeated, but it watches an epoll in which something may. */
	bool looks;
	uint64_t data;
};

#define SETTLED 4096

struct obj {
	uint8_t kind;
	uint8_t where;
	bool nonblock;
	/* An eventfd that is the kernel's, and may be adopted if it is made not to block. */
	bool fresh;
	bool semaphore;
	/* Of an epoll: the order of its events is not promised any more. */
	bool any_order;
	/* Of a pipe: the slots are packets; of a socket: messages. */
	bool packets;
	/* Has been sent, and may be what another descriptor is believed not to be. */
	bool unsure;
	/* An epoll of which Pollux does not know every number: one was made by dup2. */
	bool unknown;
	int16_t refs;
	/* The other end. */
	int16_t peer;
	/* What has been sent to it. */
	int16_t flying[4];
	uint8_t nflying;
	uint8_t nitems;
	uint64_t count;
	struct item items[ITEMS];
};

/* A process: what its numbers mean. */
struct proc {
	bool alive;
	int16_t slot[SLOTS];
	int16_t obj[NUMBERS];
	int limit;
};

struct model {
	enum profile profile;
	struct proc procs[PROCS];
	/* The process whose steps these are. */
	struct proc *me;
	int nobjs;
	struct obj objs[OBJECTS];
	int nsettled;
	struct settled settled[SETTLED];
};

/* What a pointer argument is. */
enum ptr {
	PTR_GOOD,
	PTR_NULL,
	PTR_LOW,
	PTR_UNMAPPED,
	PTR_KERNEL,
	PTR_READONLY,
	/* Good for step.room bytes. */
	PTR_EDGE,
	PTR_COUNT,
};

/* The functions that a sanitizer puts before libc's look at what they are given. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BAD_POINTERS false
#else
#define BAD_POINTERS true
#endif

struct step {
	uint8_t op;
	uint8_t proc;
	/* Slots; negative: a number that is no descriptor, see number_of. */
	int8_t a, b, c;
	/* Which of the functions that do the same. */
	uint8_t how;
	uint8_t ptr;
	bool any_order;
	bool skip;
	/* a is an epoll, for certain: it is not to be polled to find out whether the call would
	 * block. */
	bool direct;
	uint8_t room;
	/* Its part of model.settled, which comes before it. */
	int16_t settled, nsettled;
	uint32_t flags;
	int32_t n;
	uint64_t u, v;
};

/* Operands that are no descriptors: those that never are, and those of Pollux's own. */
#define NONE_PLAIN 5
#define NONE_HIDDEN 3

struct gen {
	uint64_t rng;
	struct model m;
};

/* --- ops_*.c: a kind of step ------------------------------------------------------- */

struct op {
	const char *name;
	/* How often, by profile. */
	uint16_t weight[PROFILE_COUNT];
	/* Chooses the arguments; false: there is nothing to do it on. */
	bool (*make)(struct gen *g, struct step *s);
	/* What it does to the model; sets s->any_order and s->skip. */
	void (*apply)(struct model *m, struct step *s);
	/* Makes the call and logs what came of it. */
	void (*run)(const struct step *s);
	/* The call in C. */
	void (*text)(const struct step *s);
	/* Pollux replaces all of its calls: descriptors of its own do not exist for them. */
	bool replaced;
};

/* One table for each file, ended by an entry without a name. */
extern const struct op ops_epoll[], ops_rw[], ops_eventfd[], ops_pipe[], ops_timer[], ops_socket[],
	ops_fd[], ops_poll[], ops_proc[];

extern const struct op *ops[];
extern int nops;
void ops_init(void);

/* --- random.c ---------------------------------------------------------------------- */

uint64_t rnd(struct gen *g);
/* 0..n-1 */
static inline uint32_t below(struct gen *g, uint32_t n)
{
	return (uint32_t)((rnd(g) >> 32) * n >> 32);
}
static inline bool chance(struct gen *g, uint32_t percent)
{
	return below(g, 100) < percent;
}
/* One time in n. */
static inline bool rare(struct gen *g, uint32_t n)
{
	return below(g, n) == 0;
}
#define pick(g, array) ((array)[below(g, sizeof(array) / sizeof((array)[0]))])

/* --- gen.c ------------------------------------------------------------------------- */

/* A slot whose number is a descriptor of one of the kinds; -128 if there is none. */
#define NO_SLOT (-128)
int pick_slot(struct gen *g, uint32_t kinds);
/* The same, now and then a slot of another kind, a stale one, or no descriptor at all. */
int pick_slot_or_bad(struct gen *g, uint32_t kinds);
/*
 * The same, and numbers that Pollux may have in use for itself; for calls that it replaces,
 * since others see those.
 */
int pick_slot_or_hidden(struct gen *g, uint32_t kinds);
/* A slot for a new descriptor. */
int pick_free(struct gen *g);
/* Mostly good. */
int pick_ptr(struct gen *g);
/* Chooses the steps of a sequence. */
int generate(struct gen *g, enum profile profile, uint64_t seed, struct step *steps);

/* --- model.c ----------------------------------------------------------------------- */

/*
 * Eventfds are adopted, and return to the kernel, in between (POLLUX_ADOPT is not "always"). So
 * each may be on either side from its creation, and an epoll with two of them has none of the order
 * of EP-ORD-01 to 07 (docs/compatibility.md, "Order and number of events"). What a wait reports as
 * a set, an epoll with one of them, counts and edges are as exact as ever.
 */
extern bool model_moves;
void model_init(struct model *m, enum profile profile);
/* Runs s->op's apply for the process of the step. */
void model_apply(struct model *m, struct step *s);
/* The object behind a slot, or a negative number as in a step; NULL if there is none. */
struct obj *model_obj(struct model *m, int slot);
struct obj *model_obj_at(struct model *m, int number);
struct obj *model_obj_kind(struct model *m, int slot, enum kind kind);
int model_number(struct model *m, int slot);
static inline int obj_index(struct model *m, struct obj *o)
{
	return (int)(o - m->objs);
}
/* A new object without a descriptor; NULL if the table is full. */
struct obj *model_new(struct model *m, enum kind kind, bool nonblock);
/* A descriptor for it at the lowest free number, into the slot; false: EMFILE. */
bool model_install(struct model *m, int slot, struct obj *o);
bool model_install_from(struct model *m, int slot, struct obj *o, int lowest);
bool model_room(struct model *m, int n);
void model_replace(struct model *m, int number, struct obj *o);
void model_close(struct model *m, int number);
void model_ref(struct model *m, struct obj *o);
void model_unref(struct model *m, struct obj *o);
/* The object becomes the kernel's, for certain or perhaps. */
void model_escape(struct model *m, struct obj *o);
/* It stays cached, but its count may be on the kernel's side. */
void model_both_sides(struct model *m, struct obj *o);
/* The order of the epoll's events is not promised any more, nor that of what watches it. */
void model_order_lost(struct model *m, struct obj *ep);
/* A call on it that is not going to change its count: it may return to the kernel by it. */
void model_may_return(struct model *m, struct obj *o);
/* It is made not to block. */
void model_may_adopt(struct model *m, struct obj *o);
/* Whether an epoll other than ep watches it. */
bool model_watched(struct model *m, struct obj *o, struct obj *ep);
/* Two epolls. */
void model_escape_pair(struct model *m, struct obj *a, struct obj *b);
void model_escape_maybe(struct model *m, struct obj *o);
void model_escape_all(struct model *m);
/* EPOLL_CTL_MOD in ep. */
void model_modified(struct model *m, struct obj *ep);
/* Epolls of which events may be repeated, and that this process can reach, are settled first. */
void model_settle(struct model *m, struct step *s);
/* An epoll that leaves by the step itself, whose result would tell what is in it. */
void model_leaves_first(struct model *m, struct step *s, int slot);
/* Whether from watches to, itself or by what it watches. */
bool model_reaches(struct model *m, struct obj *from, struct obj *to);
struct item *model_item(struct model *m, struct obj *ep, struct obj *o, int number);
struct item *model_add_item(struct model *m, struct obj *ep, struct obj *o, int number);
void model_del_item(struct obj *ep, struct item *it);
bool kind_adopted(enum kind kind);

/* --- log.c ------------------------------------------------------------------------- */

/* The state of a run; its memory is shared by the processes of a sequence. */
struct run {
	uint64_t hash;
	uint64_t steps;
	/* Text is made, too. */
	bool verbose;
	size_t call_len;
	char call[2048];
	/* Whose turn it is, and which step. */
	uint32_t turn;
	uint32_t at;
	uint32_t child_gone;
	/* What log_may has said. */
	size_t may_len;
	char may[65536];
};

extern struct run *run;
extern int slot_number[SLOTS];

void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Adds to the text of the call; only for text functions. */
void call(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The name of an operand. */
const char *slot_name(int slot);
const char *ptr_name(const struct step *s, const char *good);
const char *number_text(uint64_t v);
/* Hash only. */
void log_hash(uint64_t v);
/* What the call returned; errno is that of the call. */
void log_ret(long r);
/* A call that makes a descriptor in slot. */
void log_fd(int slot, int fd);
/* The value of the C expression. */
void log_value(const char *expr, uint64_t v);
void log_bytes(const char *expr, const void *p, size_t n);
void log_events(const struct step *s, struct epoll_event *ev, int n);
/* A result that is no call of the C program; hashed, and shown as a comment. */
void log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Events with some data and their bits, as many as there are; Pollux may have up to more of them
 * beyond what the kernel has.
 */
void log_may(uint64_t data, int found, int more, uint32_t bits);

/* The call was not made. */
void log_left_out(const char *why);

/* --- for run functions ------------------------------------------------------------- */

/* The number a slot stands for now. */
int number_of(int slot);
/* That of a slot which is none. */
int none_number(int slot);
void set_slot(int slot, int fd);
/* The pointer that the step wants; good if it is to be a good one. */
void *pointer(const struct step *s, void *good);
bool blocking(int fd);
/* Whether a call on fd that waits for these poll events would wait. */
bool would_block(const struct step *s, int fd, short events);
/* Before the step. */
void settle_first(const struct step *s);
extern const struct model *settled_model;
/* A signal every millisecond, until stopped: what sleeps for ever ends with EINTR. */
void ticks_start(void);
void ticks_stop(void);
/*
 * DIFFERENTIAL_STORM in the environment: signals all the time, so many microseconds apart, handled
 * by nobody that matters. Of a process; its children have none.
 */
void storm_start(void);
extern bool storming;
/* Whether such a signal ended a call that nothing else would have ended: it is made again. */
bool storm_ended(long r);
/* The same for a call whose results are looked at: what it finds then it had to find before. */
bool storm_again(long r, bool *before);
/* Whether a call that would not sleep is to sleep until such a signal ends it. */
bool storm_sleeps(void);
extern volatile sig_atomic_t sigpipes;
extern char *scratch;
#define SCRATCH 131072

/* --- ops_proc.c -------------------------------------------------------------------- */

/* Runs the steps; the text and the digest are in run. */
void run_steps(const struct step *steps, int n);
extern const struct step *all_steps;
extern int n_all_steps;

#endif
