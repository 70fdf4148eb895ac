/* SPDX-License-Identifier: MIT */
/*
 * A deterministic simulator: nodes that talk over a network that delays and loses messages.
 *
 * Each node is a fibre that waits in an epoll for its mailbox, with a time-out after which it sends
 * again. The clock is virtual, so seconds of waiting take no time; and what happens depends on the
 * seed alone: the same seed is run twice, and the traces must be the same.
 *
 *	simulator [SEED [NODES [MESSAGES]]]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scheduler.h"

#define MS 1000000
#define RESEND (200 * MS)
#define LOST_IN 10

struct message {
	struct message *next;
	int from, number;
	bool answer;
	/* For the flight. */
	struct node *to;
	int64_t delay;
};

struct node {
	/* Readable while there is mail. */
	struct pollux_file mail;
	struct message *first, **last;
	struct pollux_ep *ep;
	int id;
	/* What it has sent and has an answer for; what it has had from the one before it. */
	int sent, heard;
};

struct result {
	uint64_t trace, events, sent, lost, resent, hops;
	int64_t now;
};

static struct {
	struct scheduler *s;
	struct node *node;
	int nodes, messages, ready;
	uint64_t random;
	struct result r;
} sim;

static void need(int true_now, const char *what)
{
	if (true_now)
		return;
	fprintf(stderr, "simulator: %s\n", what);
	exit(1);
}

static uint32_t chance(uint32_t n)
{
	sim.random = sim.random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((sim.random >> 32) * n >> 32);
}

/* What happened, when, and after how many hops. */
static void note(int what, int node, int number)
{
	uint64_t v[] = {(uint64_t)what, (uint64_t)node, (uint64_t)number,
			(uint64_t)scheduler_now(sim.s), scheduler_hops(sim.s)};

	for (unsigned int i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		sim.r.trace = (sim.r.trace ^ v[i]) * 0x100000001b3ull;
	sim.r.events++;
}

static uint32_t mail_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return pollux_container_of(f, struct node, mail)->first ? EPOLLIN : 0u;
}

static const struct pollux_file_ops mail_ops = {.size = sizeof(mail_ops), .poll = mail_poll};

/* One message under way is one fibre, which sleeps. */
static void fly(void *arg)
{
	struct message *m = arg;
	struct node *to = m->to;

	fibre_sleep(m->delay);
	m->next = NULL;
	*to->last = m;
	to->last = &m->next;
	pollux_file_wake(&to->mail, EPOLLIN);
}

static void post(int from, int to, int number, bool answer)
{
	struct message *m;

	sim.r.sent++;
	if (!chance(LOST_IN)) {
		sim.r.lost++;
		note('l', from, number);
		return;
	}
	m = malloc(sizeof(*m));
	need(m != NULL, "no memory");
	*m = (struct message){
		.from = from,
		.number = number,
		.answer = answer,
		.to = &sim.node[to],
		.delay = MS + chance(50 * MS),
	};
	need(!scheduler_spawn(sim.s, fly, m), "no fibre");
}

/* Number after number to the next node, each until it is answered. */
static void hear(struct node *n, const struct message *m)
{
	int next = (n->id + 1) % sim.nodes;

	note(m->answer ? 'a' : 'm', n->id, m->number);
	if (!m->answer) {
		if (m->number == n->heard + 1)
			n->heard++;
		post(n->id, m->from, m->number, true);
	} else if (m->number == n->sent + 1) {
		n->sent++;
		if (n->sent < sim.messages)
			post(n->id, next, n->sent + 1, false);
		else
			sim.ready++;
	}
}

static void run_node(void *arg)
{
	struct node *n = arg;
	int next = (n->id + 1) % sim.nodes;
	struct epoll_event ev;

	post(n->id, next, 1, false);
	while (sim.ready < sim.nodes) {
		int64_t before = scheduler_now(sim.s);
		int r = pollux_ep_wait(n->ep, &ev, 1, RESEND);

		need(r >= 0, "a wait fails");
		if (!r) {
			need(scheduler_now(sim.s) == before + RESEND, "a time-out at another time");
			note('t', n->id, n->sent);
			if (n->sent < sim.messages) {
				sim.r.resent++;
				post(n->id, next, n->sent + 1, false);
			}
		}
		while (n->first) {
			struct message *m = n->first;

			n->first = m->next;
			if (!n->first)
				n->last = &n->first;
			hear(n, m);
			free(m);
		}
	}
}

static void node_new(struct node *n, int id)
{
	struct epoll_event ev = {.events = EPOLLIN};

	memset(n, 0, sizeof(*n));
	n->id = id;
	n->last = &n->first;
	pollux_file_init(&n->mail, &mail_ops);
	need(!scheduler_ep_new(sim.s, &n->ep), "no epoll");
	need(!pollux_ep_ctl(n->ep, EPOLL_CTL_ADD, &n->mail, 0, &ev), "ADD");
	need(!scheduler_spawn(sim.s, run_node, n), "no fibre");
}

/* Mail that came when the node had ended. */
static void node_free(struct node *n)
{
	while (n->first) {
		struct message *m = n->first;

		n->first = m->next;
		free(m);
	}
	pollux_ep_put(n->ep);
	pollux_file_put(&n->mail);
}

static struct result simulate(uint64_t seed)
{
	memset(&sim.r, 0, sizeof(sim.r));
	sim.random = seed;
	sim.ready = 0;
	sim.s = scheduler_new(CLOCK_VIRTUAL);
	need(sim.s != NULL, "no scheduler");
	for (int i = 0; i < sim.nodes; i++)
		node_new(&sim.node[i], i);
	scheduler_run(sim.s);
	sim.r.now = scheduler_now(sim.s);
	sim.r.hops = scheduler_hops(sim.s);
	for (int i = 0; i < sim.nodes; i++) {
		need(sim.node[i].sent == sim.messages && sim.node[i].heard == sim.messages,
		     "messages are missing");
		node_free(&sim.node[i]);
	}
	scheduler_free(sim.s);
	return sim.r;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	struct timespec from, to;
	struct result a, b, other;

	sim.nodes = argc > 2 ? atoi(argv[2]) : 50;
	sim.messages = argc > 3 ? atoi(argv[3]) : 100;
	need(sim.nodes > 1 && sim.messages > 0, "two nodes and a message are the least");
	sim.node = calloc((size_t)sim.nodes, sizeof(*sim.node));
	need(sim.node != NULL, "no memory");
	clock_gettime(CLOCK_MONOTONIC, &from);
	a = simulate(seed);
	clock_gettime(CLOCK_MONOTONIC, &to);
	b = simulate(seed);
	other = simulate(seed + 1);
	free(sim.node);
	printf("seed %llu: %llu events in %.3f s of virtual time and %.3f s of real time, %llu "
	       "hops; "
	       "%llu messages, %llu lost, %llu sent again; trace %016llx\n",
	       (unsigned long long)seed, (unsigned long long)a.events, (double)a.now / 1e9,
	       (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9,
	       (unsigned long long)a.hops, (unsigned long long)a.sent, (unsigned long long)a.lost,
	       (unsigned long long)a.resent, (unsigned long long)a.trace);
	need(!memcmp(&a, &b, sizeof(a)), "the same seed has made another trace");
	need(a.trace != other.trace, "another seed has made the same trace");
	printf("the same again: the same trace; seed %llu: trace %016llx\n",
	       (unsigned long long)seed + 1, (unsigned long long)other.trace);
	return 0;
}
