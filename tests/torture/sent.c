/* SPDX-License-Identifier: MIT */
/*
 * Objects are sent to another process, and to this one, by SCM_RIGHTS while threads write, read,
 * wait, change registrations and close numbers: what is counted stays counted, each edge is
 * reported, one of them once more at most, and nobody sleeps for ever. The receiver is a program of
 * its own, which uses what it gets, and gets the object itself, also if the number becomes one of
 * ours while it is sent.
 */
#include "posix/posix.h"

#include "torture.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#define LONG_MS 60000

/* --- the receiver ------------------------------------------------------------------------ */

enum use { USE_COUNT, USE_EPOLL, USE_NOTHING };

/* What is to be done with the descriptor that comes with it, and what has been done. */
struct order {
	enum use use;
	uint32_t n;
	uint64_t data;
	/* The answer. */
	uint64_t written, got;
};

static int received(int chan, struct order *o)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = o, .iov_len = sizeof(*o)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof(control.room)};
	ssize_t r = recvmsg(chan, &m, MSG_CMSG_CLOEXEC);
	int fd;

	if (r != sizeof(*o) || m.msg_controllen < CMSG_LEN(sizeof(fd)))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* Through libc: it is the kernel's. */
static void use(struct order *o, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = o->data};
	uint64_t v = 1;

	for (uint32_t i = 0; o->use == USE_COUNT && i < o->n; i++) {
		if (write(fd, &v, sizeof(v)) == sizeof(v))
			o->written++;
		if (i % 4 == 3 && read(fd, &v, sizeof(v)) == sizeof(v))
			o->got += v;
		v = 1;
	}
	if (o->use == USE_EPOLL) {
		int mine = eventfd(1, EFD_CLOEXEC);

		/* Whoever waits there hears of it. It stays open. */
		o->written = epoll_ctl(fd, EPOLL_CTL_ADD, mine, &ev) == 0;
	}
}

static int receiver(int chan)
{
	struct order o;
	int fd, kept = -1;

	while ((fd = received(chan, &o)) >= 0) {
		use(&o, fd);
		/* The last one is closed later, and those of the epolls never. */
		if (kept >= 0)
			close(kept);
		kept = fd;
		if (send(chan, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
			break;
	}
	return 0;
}

static struct {
	int chan;
	pid_t pid;
} other;

static void other_start(void)
{
	char number[16];
	int pair[2];

	/* Nothing of ours is open. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	snprintf(number, sizeof(number), "%d", pair[1]);
	other.chan = pair[0];
	other.pid = pollux_fork();
	if (other.pid == 0) {
		fcntl(pair[1], F_SETFD, 0);
		execl("/proc/self/exe", "sent", "--receiver", number, (char *)NULL);
		_exit(1);
	}
	assert_true(other.pid > 0);
	close(pair[1]);
}

static void other_end(void)
{
	int status;

	close(other.chan);
	assert_int_equal(waitpid(other.pid, &status, 0), other.pid);
	assert_int_equal(status, 0);
}

/* As the drop-in does it; meanwhile() may be NULL. */
static bool sent_beside(int chan, struct order *o, int fd, bool many, void (*meanwhile)(void *),
			void *arg)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.room = {0}};
	struct iovec iov = {.iov_base = o, .iov_len = sizeof(*o)};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov,
					.msg_iovlen = 1,
					.msg_control = control.room,
					.msg_controllen = sizeof(control.room)}};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m.msg_hdr);
	uint64_t noted = 0;
	bool done;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	plx_px_escape_msg(&m.msg_hdr, &noted);
	if (meanwhile)
		meanwhile(arg);
	done = many ? sendmmsg(chan, &m, 1, MSG_NOSIGNAL) == 1
		    : sendmsg(chan, &m.msg_hdr, MSG_NOSIGNAL) == sizeof(*o);
	plx_px_sent(&noted);
	return done;
}

static bool sent(int chan, struct order *o, int fd, bool many)
{
	return sent_beside(chan, o, fd, many, NULL, NULL);
}

/* The other one has used it when this returns. False: it was not there. */
static bool lend(struct order *o, int fd, bool many)
{
	if (!sent(other.chan, o, fd, many))
		return false;
	if (recv(other.chan, o, sizeof(*o), 0) != sizeof(*o))
		broken("the receiver has ended");
	return true;
}

/* The same within this process: another number for it, of the kernel's. */
static int to_ourselves(int fd, bool many)
{
	struct order o = {.use = USE_NOTHING};
	int pair[2], got = -1;

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	if (sent(pair[0], &o, fd, many))
		got = received(pair[1], &o);
	close(pair[0]);
	close(pair[1]);
	return got;
}

/* --- counts ------------------------------------------------------------------------------- */

#define FILES 3
#define WRITERS 2
#define THREADS (WRITERS + 2)
#define WOKEN FILES

static unsigned long rounds, sendings, meddlings;

struct world {
	int ep, second, fd[FILES], twin, wake;
	uint64_t written[FILES], got[FILES];
	uint32_t seed;
	int stop, over;
};

struct part {
	struct thread t;
	struct world *w;
	uint32_t r;
};

static const uint32_t modes[FILES] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN};

static int ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_epoll_ctl(ep, op, fd, &ev);
}

static void writes(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;

	while (!atomic_get(&w->stop) && !stopping()) {
		uint32_t r = rnd(&p->r), i = r % (FILES + 1);
		uint64_t v = 1 + (r >> 8) % 3;
		int fd = i == FILES ? w->twin : w->fd[i];

		/* The twin is the first one's second number. */
		i %= FILES;
		atomic_add(&w->written[i], v);
		if (pollux_write(fd, &v, sizeof(v)) != sizeof(v))
			broken("a write failed: %s", strerror(errno));
		if ((r >> 16) % 8 == 0)
			sched_yield();
		else if ((r >> 16) % 64 == 1)
			usleep((r >> 24) % 64);
	}
}

static uint64_t take(int fd)
{
	uint64_t v;

	if (pollux_read(fd, &v, sizeof(v)) == sizeof(v))
		return v;
	if (errno != EAGAIN)
		broken("a read failed: %s", strerror(errno));
	return 0;
}

static void waits(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;

	while (!atomic_get(&w->over) && !stopping()) {
		struct epoll_event ev[WOKEN + 1];
		uint32_t seen = 0;
		int max = 1 + (int)(rnd(&p->r) % (WOKEN + 1));
		int n = pollux_epoll_wait(w->ep, ev, max, LONG_MS);

		if (n <= 0)
			broken("a wait gave %d", n);
		for (int i = 0; i < n; i++) {
			uint64_t at = ev[i].data.u64;

			if (at > WOKEN || seen & 1u << at || !(ev[i].events & EPOLLIN)) {
				broken("event %#x of %#llx", ev[i].events, (unsigned long long)at);
				return;
			}
			seen |= 1u << at;
			if (at < FILES) {
				uint64_t v = take(w->fd[at]);

				atomic_add(&w->got[at], v);
				/* Of a semaphore's there is more than one. */
				while (v && modes[at] & EPOLLET) {
					v = take(w->fd[at]);
					atomic_add(&w->got[at], v);
				}
			}
		}
	}
}

/* Numbers and registrations that come and go. */
static void meddles(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;

	while (!atomic_get(&w->stop) && !stopping()) {
		uint32_t r = rnd(&p->r);
		int i = (int)(r % FILES), fd, ep;

		switch ((r >> 8) % 7) {
		case 0:
			check(ctl(w->ep, EPOLL_CTL_MOD, w->fd[i], modes[i], (uint64_t)i) == 0);
			break;
		case 1:
			check(ctl(w->ep, EPOLL_CTL_DEL, w->fd[i], 0, 0) == 0);
			check(ctl(w->ep, EPOLL_CTL_ADD, w->fd[i], modes[i], (uint64_t)i) == 0);
			break;
		case 2:
			fd = pollux_dup(w->fd[i]);
			check(fd >= 0);
			check(pollux_write(fd, &(uint64_t){1}, 8) == 8);
			atomic_add(&w->written[i], 1);
			pollux_close(fd);
			break;
		case 3:
			fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
			check(pollux_dup2(w->fd[i], fd) == fd);
			check(pollux_write(fd, &(uint64_t){1}, 8) == 8);
			atomic_add(&w->written[i], 1);
			pollux_close(fd);
			break;
		case 4:
			ep = pollux_epoll_create1(EPOLL_CLOEXEC);
			check(ctl(ep, EPOLL_CTL_ADD, w->fd[i], EPOLLIN, 0) == 0);
			sched_yield();
			pollux_close(ep);
			break;
		case 5:
			check(ctl(w->second, EPOLL_CTL_MOD, w->twin, EPOLLIN | EPOLLET, 0) == 0);
			break;
		default:
			check(pollux_fcntl(w->fd[i], F_SETFL, O_NONBLOCK) == 0);
		}
		atomic_add(&meddlings, 1);
		if ((r >> 16) % 4 == 0)
			usleep((r >> 20) % 256);
	}
}

static void send_one(struct world *w, uint32_t r)
{
	struct order o = {.n = (r >> 8) % 16};
	bool many = r >> 16 & 1, mine = (r >> 17 & 3) == 0;
	uint32_t i = r % (FILES + 3);
	int fd = i < FILES ? w->fd[i] : i == FILES ? w->twin : w->ep;

	if (i > FILES)
		o.use = USE_NOTHING;
	if (i <= FILES && !mine) {
		i %= FILES;
		check(lend(&o, fd, many));
		atomic_add(&w->written[i], o.written);
		atomic_add(&w->got[i], o.got);
	} else if (mine) {
		int got = to_ourselves(fd, many);

		check(got >= 0);
		if (i <= FILES) {
			i %= FILES;
			atomic_add(&w->written[i], 1);
			check(write(got, &(uint64_t){1}, 8) == 8);
		}
		close(got);
	} else {
		check(lend(&o, fd, many));
	}
	atomic_add(&sendings, 1);
}

static void world_begin(struct world *w)
{
	uint32_t seed = w->seed;

	*w = (struct world){.seed = seed};
	w->ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	w->second = pollux_epoll_create1(EPOLL_CLOEXEC);
	w->wake = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	for (int i = 0; i < FILES; i++) {
		int semaphore = i == 2 ? EFD_SEMAPHORE : 0;

		w->fd[i] = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | semaphore);
		check(ctl(w->ep, EPOLL_CTL_ADD, w->fd[i], modes[i], (uint64_t)i) == 0);
	}
	w->twin = pollux_dup(w->fd[0]);
	check(ctl(w->second, EPOLL_CTL_ADD, w->twin, EPOLLIN | EPOLLET, 0) == 0);
	check(ctl(w->ep, EPOLL_CTL_ADD, w->wake, EPOLLIN, WOKEN) == 0);
	check(pollux_fd_served(w->fd[0]) == 1);
}

static bool all_there(struct world *w)
{
	for (int i = 0; i < FILES; i++)
		if (atomic_get(&w->got[i]) != atomic_get(&w->written[i]))
			return false;
	return true;
}

static void world_end(struct world *w)
{
	for (int i = 0; i < FILES; i++)
		pollux_close(w->fd[i]);
	pollux_close(w->twin);
	pollux_close(w->wake);
	pollux_close(w->ep);
	pollux_close(w->second);
}

static void world_round(struct world *w)
{
	struct part p[THREADS];
	void (*mains[THREADS])(struct thread *) = {waits, meddles};

	world_begin(w);
	for (int i = 0; i < THREADS; i++) {
		p[i] = (struct part){.w = w, .r = rnd(&w->seed)};
		thread_start(&p[i].t, mains[i] ? mains[i] : writes, &p[i]);
	}
	for (int i = 0; i < 4 && !stopping(); i++) {
		usleep(rnd(&w->seed) % 2000);
		send_one(w, rnd(&w->seed));
	}
	atomic_set(&w->stop, 1);
	for (int i = 1; i < THREADS; i++)
		thread_join(&p[i].t);
	/* One reader is left, which has to hear of all. */
	if (!stopping() && !await(all_there(w)))
		for (int i = 0; i < FILES; i++)
			broken("%d: %llu written, %llu read", i, (unsigned long long)w->written[i],
			       (unsigned long long)w->got[i]);
	atomic_set(&w->over, 1);
	check(pollux_write(w->wake, &(uint64_t){1}, 8) == 8);
	thread_join(&p[0].t);
	world_end(w);
	rounds++;
}

static void counts(void **state)
{
	struct world w = {.seed = 5};
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	other_start();
	while (torture_until(start, rounds > 5))
		world_round(&w);
	other_end();
	torture_end(NULL, 0);
	print_message("%lu rounds, %lu sent, %lu other calls\n", rounds, sendings, meddlings);
	assert_true(rounds > 5);
}

/* --- edges -------------------------------------------------------------------------------- */

enum { EDGE_OBJECT, EDGE_SOCKET, EDGES };

struct edges {
	int ep, fd, sock[2];
	/* Of each: written, and reported. */
	uint64_t made[EDGES], heard[EDGES];
	/* One of the object that has been reported comes again when it leaves. */
	bool again;
	int stop, over;
};

static unsigned long edge_rounds, edges_made;

static void hears(struct thread *t)
{
	struct edges *e = t->arg;

	for (;;) {
		struct epoll_event ev[EDGES + 1];
		int n = pollux_epoll_wait(e->ep, ev, EDGES + 1, LONG_MS);

		if (stopping())
			return;
		if (n <= 0)
			broken("a wait gave %d", n);
		for (int i = 0; i < n; i++) {
			uint64_t at = ev[i].data.u64;

			if (at >= EDGES) {
				broken("an event of %#llx", (unsigned long long)at);
				return;
			}
			if (atomic_get(&e->heard[at]) < atomic_get(&e->made[at]))
				atomic_add(&e->heard[at], 1);
			else if (at == EDGE_OBJECT && !e->again)
				e->again = true;
			else
				broken("an edge of %s more than was made",
				       at ? "the socket" : "the object");
		}
		if (atomic_get(&e->over))
			return;
	}
}

/* One after the other, each when the one before it has been heard of. Nobody reads. */
static bool edge(struct edges *e, int at)
{
	bool all;

	atomic_add(&e->made[at], 1);
	if (at == EDGE_OBJECT)
		check(pollux_write(e->fd, &(uint64_t){1}, 8) == 8);
	else
		check(write(e->sock[1], "x", 1) == 1);
	all = await(stopping() || atomic_get(&e->heard[at]) == atomic_get(&e->made[at]));
	if (!all)
		broken("edge %llu of %s is lost", (unsigned long long)e->made[at],
		       at ? "the socket" : "the object");
	atomic_add(&edges_made, 1);
	return all && !stopping();
}

static void makes_objects(struct thread *t)
{
	struct edges *e = t->arg;

	while (!atomic_get(&e->stop) && edge(e, EDGE_OBJECT))
		;
}

static void makes_sockets(struct thread *t)
{
	struct edges *e = t->arg;

	/* As many as there is room for. */
	for (int i = 0; i < 200 && !atomic_get(&e->stop) && edge(e, EDGE_SOCKET); i++)
		if (i % 8 == 0)
			sched_yield();
}

static void edges_round(uint32_t *seed)
{
	struct edges e = {.ep = pollux_epoll_create1(EPOLL_CLOEXEC),
			  .fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
	struct order o = {.use = USE_NOTHING};
	uint32_t r = rnd(seed);
	struct thread t[3];

	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e.sock) == 0);
	check(ctl(e.ep, EPOLL_CTL_ADD, e.fd, EPOLLIN | EPOLLET, EDGE_OBJECT) == 0);
	check(ctl(e.ep, EPOLL_CTL_ADD, e.sock[0], EPOLLIN | EPOLLET, EDGE_SOCKET) == 0);
	thread_start(&t[0], hears, &e);
	thread_start(&t[1], makes_objects, &e);
	thread_start(&t[2], makes_sockets, &e);
	usleep(r % 1000);
	check(lend(&o, r >> 10 & 1 ? e.fd : e.ep, r >> 11 & 1));
	usleep((r >> 12) % 1000);
	check(lend(&o, r >> 10 & 1 ? e.ep : e.fd, r >> 11 & 1));
	usleep((r >> 22) % 500);
	atomic_set(&e.stop, 1);
	thread_join(&t[1]);
	thread_join(&t[2]);
	/* It leaves with the next. */
	atomic_set(&e.over, 1);
	atomic_add(&e.made[EDGE_OBJECT], 1);
	check(pollux_write(e.fd, &(uint64_t){1}, 8) == 8);
	thread_join(&t[0]);
	pollux_close(e.ep);
	pollux_close(e.fd);
	close(e.sock[0]);
	close(e.sock[1]);
	edge_rounds++;
}

static void edges(void **state)
{
	int64_t start = now_ns();
	uint32_t seed = 9;

	(void)state;
	torture_begin();
	other_start();
	while (torture_until(start, edge_rounds > 20))
		edges_round(&seed);
	other_end();
	torture_end(NULL, 0);
	print_message("%lu rounds, %lu edges\n", edge_rounds, edges_made);
	assert_true(edge_rounds > 20);
}

/* --- an epoll in which somebody sleeps ------------------------------------------------------ */

#define OTHERS_DATA 77
#define OWN_DATA 78

struct sleeper {
	struct thread t;
	int ep, fd;
	int heard_other, heard_own, spurious;
};

static unsigned long slept;

static void sleeps(struct thread *t)
{
	struct sleeper *s = t->arg;

	while (!s->heard_own && !stopping()) {
		struct epoll_event ev[2];
		int n = pollux_epoll_wait(s->ep, ev, 2, LONG_MS);

		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64 == OTHERS_DATA)
				atomic_add(&s->heard_other, 1);
			else if (ev[i].data.u64 == OWN_DATA)
				atomic_add(&s->heard_own, 1);
			else
				s->spurious = 1;
		}
		if (n <= 0 || s->spurious)
			broken("a wait gave %d", n);
	}
}

static void a_sleeper(void **state)
{
	int64_t start = now_ns();
	uint32_t seed = 13;

	(void)state;
	torture_begin();
	other_start();
	for (; torture_until(start, slept > 20); slept++) {
		struct sleeper s = {.ep = pollux_epoll_create1(EPOLL_CLOEXEC),
				    .fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
		struct order o = {.use = USE_EPOLL, .data = OTHERS_DATA};

		check(ctl(s.ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, OWN_DATA) == 0);
		thread_start(&s.t, sleeps, &s);
		usleep(rnd(&seed) % 500);
		check(lend(&o, s.ep, rnd(&seed) & 1));
		check(o.written == 1);
		if (!await(stopping() || atomic_get(&s.heard_other)))
			broken("a sleeper does not hear of what another process has registered");
		check(pollux_write(s.fd, &(uint64_t){1}, 8) == 8);
		thread_join(&s.t);
		check(atomic_get(&s.heard_other) == 1);
		pollux_close(s.ep);
		pollux_close(s.fd);
	}
	other_end();
	torture_end(NULL, 0);
	print_message("%lu sleepers\n", slept);
	assert_true(slept > 20);
}

/* --- a number that becomes one of ours while it is sent --------------------------------------- */

struct replaced {
	struct thread t;
	struct gate gate;
	/* Where who puts it there stands when the sender has not begun, or NULL. */
	const char *point;
	int efd, ep, from, number, result;
};

static void replaces(struct thread *t)
{
	struct replaced *r = t->arg;

	if (r->point)
		gate_arm(&r->gate, r->point);
	r->result = pollux_dup2(r->from, r->number);
}

/* The number is noted; what was there has not been sent. */
static void replace_now(void *arg)
{
	struct replaced *r = arg;

	if (r->point)
		gate_open(&r->gate);
	else
		thread_start(&r->t, replaces, r);
	check(await(thread_done(&r->t)));
}

/* What has come is the eventfd, or the epoll that watches it. */
static void is_what_was_put_there(struct replaced *r, int got, bool epoll)
{
	struct epoll_event ev;

	check(pollux_write(r->efd, &(uint64_t){3}, 8) == 8);
	if (epoll)
		check(epoll_wait(got, &ev, 1, 0) == 1 && ev.data.u64 == OWN_DATA);
	else
		check(read(got, &(uint64_t){0}, 8) == 8);
}

static void replaced_while_sent(bool epoll, const char *point)
{
	struct replaced r = {.point = point};
	struct order o = {.use = USE_NOTHING};
	int old[2], pair[2], got;

	torture_begin();
	points_delay(false);
	check(pipe2(old, O_CLOEXEC) == 0);
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	r.efd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	r.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	check(ctl(r.ep, EPOLL_CTL_ADD, r.efd, EPOLLIN, OWN_DATA) == 0);
	check(pollux_fd_served(r.efd) && pollux_fd_served(r.ep));
	r.from = epoll ? r.ep : r.efd;
	r.number = old[0];
	if (point) {
		start_to_gate(&r.t, replaces, &r, &r.gate);
	}
	check(sent_beside(pair[0], &o, r.number, false, replace_now, &r));
	thread_join(&r.t);
	check(r.result == r.number);
	got = received(pair[1], &o);
	check(got >= 0);
	is_what_was_put_there(&r, got, epoll);
	check(epoll || pollux_read(r.number, &(uint64_t){0}, 8) == -1);
	/* Afterwards it stays ours. */
	pollux_close(r.efd);
	r.efd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	check(pollux_dup2(r.efd, r.number) == r.number && pollux_fd_served(r.number));
	pollux_close(r.efd);
	pollux_close(r.ep);
	pollux_close(r.number);
	close(old[1]);
	close(got);
	close(pair[0]);
	close(pair[1]);
	torture_end(NULL, 0);
}

static void replaced_while_it_is_sent(void **state)
{
	(void)state;
	replaced_while_sent(false, NULL);
	replaced_while_sent(true, NULL);
}

/* Who puts it there has found that nobody sends. */
static void replaced_when_nobody_seemed_to_send(void **state)
{
	(void)state;
	replaced_while_sent(false, "dup_before_entry");
	replaced_while_sent(true, "dup_before_entry");
}

struct finds {
	struct thread t;
	int chan, fd;
};

static void finds_main(struct thread *t)
{
	struct finds *s = t->arg;
	struct order o = {.use = USE_NOTHING};

	check(sent(s->chan, &o, s->fd, true));
}

/*
 * The number is one of ours already, and the sender finds the other there: that is taken back, as
 * he has noted the number.
 */
static void replaced_and_taken_back(void **state)
{
	struct replaced r = {.point = "dup_entry"};
	struct order o;
	struct finds s;
	int pair[2], got;

	(void)state;
	torture_begin();
	points_delay(false);
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	r.number = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	r.from = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	r.efd = pollux_dup(r.number);
	s = (struct finds){.chan = pair[0], .fd = r.number};
	start_to_gate(&r.t, replaces, &r, &r.gate);
	thread_start(&s.t, finds_main, &s);
	sleep_ms(20);
	gate_open(&r.gate);
	thread_join(&s.t);
	thread_join(&r.t);
	check(r.result == r.number);
	got = received(pair[1], &o);
	/* It is one of the two. */
	check(pollux_write(r.efd, &(uint64_t){1}, 8) == 8);
	check(pollux_write(r.from, &(uint64_t){1}, 8) == 8);
	check(read(got, &(uint64_t){0}, 8) == 8);
	pollux_close(r.efd);
	pollux_close(r.from);
	pollux_close(r.number);
	close(got);
	close(pair[0]);
	close(pair[1]);
	torture_end(NULL, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(counts),
		TEST(edges),
		TEST(a_sleeper),
		TEST(replaced_while_it_is_sent),
		TEST(replaced_when_nobody_seemed_to_send),
		TEST(replaced_and_taken_back),
	};

	if (argc == 3 && strcmp(argv[1], "--receiver") == 0)
		return receiver(atoi(argv[2]));
	plx_px_init();
	return RUN(tests);
}
