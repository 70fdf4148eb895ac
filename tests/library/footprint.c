/* SPDX-License-Identifier: MIT */
/* One object in one epoll, or, without POLLUX, neither. It prints what the program takes. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#if POLLUX
#include <pollux/epoll.h>

static uint32_t always(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	return wanted & EPOLLIN;
}

static int use(void)
{
	static const struct pollux_file_ops ops = {.size = sizeof(ops), .poll = always};
	static struct pollux_file file;
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_ep *ep;

	pollux_file_init(&file, &ops);
	if (pollux_ep_new(&ep, NULL) || pollux_ep_ctl(ep, EPOLL_CTL_ADD, &file, 0, &ev))
		return -1;
	pollux_file_wake(&file, EPOLLIN);
	return pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) == 1 ? 0 : -1;
}
#else
static int use(void)
{
	return 0;
}
#endif

static bool used;

/* At the end, which uses some of libc in every program. */
__attribute__((destructor)) static void print(void)
{
	static char text[4096];
	int fd = used ? open("/proc/self/smaps", O_RDONLY) : -1;
	ssize_t n;

	while ((n = read(fd, text, sizeof(text))) > 0)
		if (write(1, text, (size_t)n) != n)
			_exit(1);
}

int main(void)
{
	used = use() == 0;
	return !used;
}
