/* SPDX-License-Identifier: MIT */
/*
 * What an epoll shows of itself. As text, for people, from a debugger or a handler as well: nothing
 * is allocated, no operation of a file is called, and no lock is waited for. So of what is being
 * armed again it may show the data of after with the events of before.
 */
#include "wait/side.h"

#include "base/sys.h"

#define LINE 512

int pollux_ep_for_each(struct pollux_ep *ep, pollux_ep_item_fn fn, void *arg)
{
	int r = plx_file_own(&ep->file);

	if (plx_unlikely(r))
		return r;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = ep->items.next; !r && l != &ep->items; l = l->next) {
		struct plx_epitem *item = plx_all_item(l);
		const struct epoll_event ev = plx_item_registered(item);

		/* It may be in its release already, which waits for the mutex with its items. */
		if (!plx_file_dying(item->file))
			r = fn(arg, item->file, item->key, &ev);
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	return r;
}

int pollux_ep_stat(struct pollux_ep *ep, struct pollux_ep_stat *st, size_t size)
{
	struct pollux_ep_stat now = {0};
	int r = plx_file_own(&ep->file);

	if (plx_unlikely(r))
		return r;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	plx_ready_splice(ep);
	now.items = ep->nitems;
	for (struct plx_list *l = ep->ready.next; l != &ep->ready; l = l->next)
		now.queued++;
	if (now.queued)
		plx_store_rel(&ep->has_ready, 1);
	now.collections = ep->harvests;
	now.events = ep->events;
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	now.sleepers = plx_load(&ep->sleepers);
	memset(st, 0, size);
	memcpy(st, &now, size < sizeof(now) ? size : sizeof(now));
	return 0;
}

struct out {
	int fd;
	long err;
	unsigned int n;
	char text[LINE];
};

static void flush(struct out *o)
{
	const char *at = o->text;

	while (o->n && !o->err) {
		long r = plx_sys3(SYS_write, o->fd, at, o->n);

		if (r > 0) {
			at += r;
			o->n -= (unsigned int)r;
		} else if (r != -EINTR) {
			o->err = r ? r : -EIO;
		}
	}
	o->n = 0;
}

static void put(struct out *o, const char *text)
{
	for (; *text; text++) {
		if (o->n == LINE)
			flush(o);
		o->text[o->n++] = *text;
	}
}

static void put_number(struct out *o, const char *before, uint64_t v, unsigned int base,
		       const char *after)
{
	char text[24], *at = text + sizeof(text);

	*--at = 0;
	do {
		*--at = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	put(o, before);
	put(o, base == 16 ? "0x" : "");
	put(o, at);
	put(o, after);
}

#define put_dec(o, before, v, after) put_number(o, before, v, 10, after)
#define put_hex(o, before, v, after) put_number(o, before, v, 16, after)

static void put_item(struct out *o, const struct plx_epitem *item)
{
	struct pollux_file *f = item->file;

	put_hex(o, "  file ", (uintptr_t)f, item->key < 0 ? ", key -" : ", key ");
	put_dec(o, "", item->key < 0 ? -(uint64_t)item->key : (uint64_t)item->key, "");
	put_hex(o, ": wants ", plx_load(&item->w.events), "");
	put_hex(o, ", data ", plx_load(&item->data), "");
	put(o, plx_file_dying(f) ? ", being closed" : "");
	put(o, plx_load(&item->node->mark) & PLX_QUEUED ? ", queued" : "");
	put(o, plx_item_given(item) ? ", reported" : "");
	put(o, f->kind == PLX_KIND_EPOLL ? ", an epoll" : "");
	put(o, "\n");
}

/* ep.mtx held. */
static void put_items(struct out *o, struct pollux_ep *ep)
{
	put_dec(o, "  ", ep->events, " events");
	put_dec(o, " in ", ep->harvests, " collections");
	put_dec(o, "; ", ep->nitems, " registrations\n");
	if (ep->due != PLX_NEVER)
		put_dec(o, "  one is due at ", (uint64_t)ep->due, " ns\n");
	for (struct plx_list *l = ep->items.next; l != &ep->items && !o->err; l = l->next)
		put_item(o, plx_all_item(l));
}

int pollux_ep_dump(struct pollux_ep *ep, int fd)
{
	int batches = ep->batches ? plx_batches_open(ep) : -1;
	struct out o = {.fd = fd};

	put_hex(&o, "epoll ", (uintptr_t)ep, plx_ready_empty(ep) ? ": nothing" : ": something");
	put_dec(&o, " is queued, threads asleep: ", plx_load(&ep->sleepers), "");
	put(&o, plx_load(&ep->bell) & PLX_RINGS ? ", one is being woken" : "");
	put(&o, plx_load(&ep->shut) ? ", shut down" : "");
	put(&o, ep->batches ? ", with batches" : "");
	put(&o, plx_ep_on_futex(ep) ? "" : ", with a host");
	put(&o, "\n");
	if (batches >= 0)
		put_dec(&o, "  threads at events of it: ", (uint64_t)batches, "\n");
	if (plx_load_acq(&ep->side))
		/* The kernel tells which they are. */
		put_dec(&o, "  descriptors: /proc/self/fdinfo/", (uint64_t)plx_side_of(ep)->epfd,
			"\n");
	if (plx_file_stale(&ep->file)) {
		put(&o, "  it is from before a fork\n");
	} else if (!plx_glance(&ep->mtx)) {
		put(&o, "  its registrations are being changed or looked at\n");
	} else {
		put_items(&o, ep);
		plx_glance_end(&ep->mtx);
	}
	put_dec(&o, "  of the process: ", plx_reclaim_bytes(), " bytes wait to be freed\n");
	flush(&o);
	return (int)o.err;
}
