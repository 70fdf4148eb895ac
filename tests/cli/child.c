/* SPDX-License-Identifier: MIT */
/*
 * Says how it was started: LD_PRELOAD in its environment, whether the drop-in is mapped, or the
 * small library for programs that only start others, and a variable of the caller's. It has no use
 * for Pollux, unless it is built to name something (USES, or DEFINES for what libc lacks).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under another name here: headers declare some of them. */
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
#ifdef DEFINES
int defined_here(void) __asm__(TEXT(DEFINES));
int defined_here(void)
{
	return 0;
}
#elif defined(USES)
extern char used_here[] __asm__(TEXT(USES));
const void *volatile used = used_here;
#endif

static const char *value(const char *name)
{
	const char *s = getenv(name);

	return s ? s : "-";
}

int main(void)
{
	char line[4096];
	FILE *f = fopen("/proc/self/maps", "r");
	const char *mapped = "plain";

	if (!f)
		return 2;
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, "libpollux-preload.so"))
			mapped = "mapped";
		else if (strstr(line, "libpollux-starter.so"))
			mapped = "starter";
	}
	fclose(f);
	printf("%s %s %s\n", mapped, value("LD_PRELOAD"), value("CHILD"));
	return 0;
}
