/* SPDX-License-Identifier: MIT */
/*
 * Processes and signals: fork, steps of parent and child in turns, the child's exit; children that
 * end at once; calls that sleep until a signal comes.
 */
#include "differential.h"

#include <linux/futex.h>
#include <sys/wait.h>
#include <time.h>

const struct step *all_steps;
int n_all_steps;

static pid_t child;
/* 0 in the parent, 1 in the child. */
static uint8_t who;

/* --- fork ------------------------------------------------------------------------------- */

static bool fork_make(struct gen *g, struct step *s)
{
	(void)s;
	return s->proc == 0 && !g->m.procs[1].alive;
}

static void fork_apply(struct model *m, struct step *s)
{
	s->skip = s->proc != 0 || m->procs[1].alive;
	if (s->skip)
		return;
	m->procs[1] = m->procs[0];
	for (int i = 0; i < NUMBERS; i++)
		if (m->procs[1].obj[i] >= 0)
			model_ref(m, &m->objs[m->procs[1].obj[i]]);
	model_escape_all(m);
}

/* The turn is 1 while the child has it. errno is that of the sequence: it does not change. */
static void wait_turn(uint32_t mine)
{
	int saved = errno;
	uint32_t turn;

	while ((turn = __atomic_load_n(&run->turn, __ATOMIC_ACQUIRE)) != mine) {
		struct timespec limit = {.tv_nsec = 100000000};

		syscall(SYS_futex, &run->turn, FUTEX_WAIT, turn, &limit, NULL, 0);
		if (mine == 0 && waitpid(child, NULL, WNOHANG) == child) {
			child = 0;
			log_note("the child died");
			return;
		}
		if (mine == 1 && getppid() == 1)
			_exit(1);
	}
	errno = saved;
}

static void give_turn(uint32_t to)
{
	__atomic_store_n(&run->turn, to, __ATOMIC_RELEASE);
	syscall(SYS_futex, &run->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void run_step(const struct step *s);

static void child_main(void)
{
	who = 1;
	for (;;) {
		wait_turn(1);
		if (run->child_gone)
			_exit(0);
		run_step(&all_steps[run->at]);
		give_turn(0);
	}
}

static void fork_run(const struct step *s)
{
	(void)s;
	run->turn = run->child_gone = 0;
	child = fork();
	if (child == 0)
		child_main();
	errno = 0;
	log_ret(child > 0);
}

static void fork_text(const struct step *s)
{
	(void)s;
	call("start_child()");
}

static void end_child(void)
{
	if (!child)
		return;
	run->child_gone = 1;
	give_turn(1);
	waitpid(child, NULL, 0);
	child = 0;
	run->turn = 0;
}

static bool exit_make(struct gen *g, struct step *s)
{
	return s->proc == 0 && g->m.procs[1].alive && rare(g, 2);
}

static void exit_apply(struct model *m, struct step *s)
{
	s->skip = s->proc != 0 || !m->procs[1].alive;
	if (s->skip)
		return;
	m->procs[1].alive = false;
	for (int i = 0; i < NUMBERS; i++)
		if (m->procs[1].obj[i] >= 0)
			model_unref(m, &m->objs[m->procs[1].obj[i]]);
}

static void exit_run(const struct step *s)
{
	(void)s;
	end_child();
	log_ret(0);
}

static void exit_text(const struct step *s)
{
	(void)s;
	call("end_child()");
}

/* --- a child that ends at once ---------------------------------------------------------- */

enum {
	CHILD_EXITS,
	CHILD_CLOSES,
	CHILD_EXECUTES,
	CHILD_KINDS,
};

static bool spawn_make(struct gen *g, struct step *s)
{
	s->how = below(g, CHILD_KINDS);
	s->a = pick_slot(g, ANY_KIND);
	return s->proc == 0 && !g->m.procs[1].alive && s->a != NO_SLOT;
}

static void spawn_apply(struct model *m, struct step *s)
{
	s->skip = s->proc != 0 || m->procs[1].alive;
	if (!s->skip)
		model_escape_all(m);
}

static void spawn_run(const struct step *s)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (s->how == CHILD_EXECUTES)
			execl("/bin/true", "true", NULL);
		if (s->how == CHILD_CLOSES)
			close(number_of(s->a));
		_exit(0);
	}
	log_ret(waitpid(pid, NULL, 0) == pid);
}

static void spawn_text(const struct step *s)
{
	static const char *const does[CHILD_KINDS] = {"_exit(0)", "close(%s)",
						      "execl(\"/bin/true\")"};
	char child[64];

	snprintf(child, sizeof(child), does[s->how], slot_name(s->a));
	call("with_child(%s)", child);
}

/* --- signals ------------------------------------------------------------------------------ */

/* A blocking read of what may be empty, ended by a signal. */
static bool sleep_make(struct gen *g, struct step *s)
{
	if (!rare(g, 10))
		return false;
	s->a = pick_slot(g, KINDS(KIND_EVENTFD) | KINDS(KIND_PIPE_R) | KINDS(KIND_SOCKET));
	s->n = below(g, 2);
	return s->a != NO_SLOT;
}

static void sleep_apply(struct model *m, struct step *s)
{
	struct obj *o = model_obj(m, s->a);

	if (!o)
		return;
	if (o->kind == KIND_EVENTFD && !s->n && o->count)
		o->count -= o->semaphore ? 1 : o->count;
}

static void sleep_run(const struct step *s)
{
	int fd = number_of(s->a);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t value = 0;
	long r;

	ticks_start();
	errno = 0;
	r = s->n ? poll(&p, 1, -1) : read(fd, &value, sizeof(value));
	ticks_stop();
	log_ret(r);
	if (r > 0)
		log_value(s->n ? "p.revents" : "value", s->n ? (uint64_t)p.revents : value);
}

static void sleep_text(const struct step *s)
{
	call(s->n ? "poll_ticked(%s, POLLIN, -1)" : "read_ticked(%s, &value, 8)", slot_name(s->a));
}

const struct op ops_proc[] = {
	{"fork", {0, 0, 0, 6}, fork_make, fork_apply, fork_run, fork_text, false},
	{"exit", {0, 0, 0, 6}, exit_make, exit_apply, exit_run, exit_text, false},
	{"spawn", {0, 0, 0, 3}, spawn_make, spawn_apply, spawn_run, spawn_text, false},
	{"sleep", {1, 1, 1, 0}, sleep_make, sleep_apply, sleep_run, sleep_text, false},
	{0},
};

/* --- a sequence ---------------------------------------------------------------------------- */

static void run_step(const struct step *s)
{
	const struct op *op = ops[s->op];

	if (s->nsettled)
		settle_first(s);
	if (s->skip)
		return;
	if (run->verbose) {
		run->call_len = 0;
		run->call[0] = 0;
		if (who)
			say("\t/* child: */\n");
		op->text(s);
	}
	run->steps++;
	op->run(s);
}

void run_steps(const struct step *steps, int n)
{
	all_steps = steps;
	n_all_steps = n;
	for (int i = 0; i < n; i++) {
		if ((steps[i].skip && !steps[i].nsettled) || (steps[i].proc && !child))
			continue;
		if (!steps[i].proc) {
			run_step(&steps[i]);
			continue;
		}
		run->at = i;
		give_turn(1);
		wait_turn(0);
	}
	end_child();
}
