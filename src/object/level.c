/* SPDX-License-Identifier: MIT */
/* A file whose events are a word of its own. */
#include "epoll/engine.h"

#include <pollux/level.h>

static struct pollux_level *file_level(struct pollux_file *f)
{
	return plx_container_of(f, struct pollux_level, file);
}

static uint32_t level_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return plx_load_acq(&file_level(f)->events);
}

static void level_free(struct pollux_file *f)
{
	file_level(f)->free(file_level(f));
}

static const struct pollux_file_ops level_ops = {
	.size = sizeof(level_ops),
	.poll = level_poll,
	.free = level_free,
};

/* Nothing is called for one that its owner frees otherwise. */
static const struct pollux_file_ops level_kept_ops = {
	.size = sizeof(level_kept_ops),
	.poll = level_poll,
};

void pollux_level_init(struct pollux_level *l, uint32_t events,
		       void (*free)(struct pollux_level *l))
{
	pollux_file_init(&l->file, free ? &level_ops : &level_kept_ops);
	l->events = events;
	l->reserved = 0;
	l->free = free;
}

void pollux_level_set(struct pollux_level *l, uint32_t events)
{
	uint32_t added;

	/* Who polls may see them before the wake. */
	plx_tsan_before(&l->file);
	added = events & ~plx_or(&l->events, events);
	if (added)
		pollux_file_wake(&l->file, added);
}

void pollux_level_clear(struct pollux_level *l, uint32_t events)
{
	(void)plx_and(&l->events, ~events);
}
