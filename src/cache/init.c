/* SPDX-License-Identifier: MIT */
/*
 * Start-up of the POSIX layer.
 */
#include "cache/posix.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/sanitizer.h"
#include "base/setting.h"
#include "base/slab.h"
#include "base/spin.h"
#include "base/sys.h"
#include "epoll/engine.h"
#include "cache/quick.h"
#include "rcu/rcu.h"

PLX_START_PAGE uint32_t plx_px_no_adopt;
PLX_START_PAGE uint32_t plx_px_adopt;
bool plx_px_filtered;

PLX_START_PAGE struct plx_libc plx_libc = {
	.epoll_wait = epoll_wait,
	.epoll_pwait = epoll_pwait,
	.epoll_pwait2 = epoll_pwait2,
	.poll = poll,
	.ppoll = ppoll,
	.close = close,
};

static const struct {
	char name[16];
	uint32_t kinds;
} adopt_names[] = {
	{"epoll", PLX_ADOPT_EPOLL},	{"eventfd", PLX_ADOPT_EVENTFD}, {"aio", PLX_ADOPT_AIO},
	{"timerfd", PLX_ADOPT_TIMERFD}, {"inline", PLX_ADOPT_INLINE},	{"all", ~0u},
};

static PLX_START_CODE uint32_t parse_kinds(const char *list)
{
	uint32_t kinds = 0;

	while (list && *list) {
		size_t len = strcspn(list, ",");

		for (size_t i = 0; i < sizeof(adopt_names) / sizeof(adopt_names[0]); i++)
			if (strlen(adopt_names[i].name) == len &&
			    memcmp(list, adopt_names[i].name, len) == 0)
				kinds |= adopt_names[i].kinds;
		list += len + (list[len] == ',');
	}
	return kinds;
}

PLX_START_CODE void plx_px_init(void)
{
	static PLX_START_PAGE uint32_t done;
	const char *spin = plx_setting("SPIN");

	if (plx_xchg(&done, 1))
		return;
	plx_px_no_adopt = parse_kinds(plx_setting("NO_ADOPT"));
	plx_px_adopt = parse_kinds(plx_setting("ADOPT"));
	plx_adopts_choose(plx_setting("ADOPT"));
	if (spin && strcmp(spin, "0") == 0)
		plx_spin_enabled = 0;
	if (plx_tsan_here() || plx_adopts == PLX_ADOPTS_RANDOM)
		plx_write_watched = 1;
	plx_retire_init();
	plx_slab_init();
	plx_wait_init();
	plx_epoll_init();
}
