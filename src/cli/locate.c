/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The build names it; without that, what Debian calls the usual machines. */
#if defined(MULTIARCH)
#elif defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#elif defined(__riscv) && __riscv_xlen == 64
#define MULTIARCH "riscv64-linux-gnu"
#endif

bool locate_self(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (n <= 0)
		return false;
	path[n] = '\0';
	return true;
}

static bool self_dir(char dir[PATH_MAX])
{
	char *slash;

	if (!locate_self(dir))
		return false;
	slash = strrchr(dir, '/');
	if (!slash)
		return false;
	if (slash == dir)
		slash++;
	*slash = '\0';
	return true;
}

/* What is no regular file is not opened by whoever gets its name. */
static bool usable(const char *path)
{
	struct stat st;

	return strlen(path) < PATH_MAX && !stat(path, &st) && S_ISREG(st.st_mode) &&
	       access(path, R_OK) == 0;
}

/* Tries DIR/NAME; a name that exists is resolved, so that messages show one clean path. */
static bool try_place(const char *dir, const char *name, char path[PATH_MAX])
{
	char *candidate = cli_format("%s/%s", dir, name);
	char *real = realpath(candidate, NULL);
	bool found = real && usable(real);

	if (found)
		strcpy(path, real);
	free(real);
	free(candidate);
	return found;
}

/* `places` is a NULL-terminated list of folders; one that begins with '/' stands for itself, the
 * others are seen from the folder of this executable. */
static bool search(const char *const *places, const char *name, char path[PATH_MAX])
{
	char self[PATH_MAX];
	char *searched = cli_strdup("");
	bool have_self = self_dir(self);
	bool found = false;

	for (; *places && !found; places++) {
		char *dir, *longer;

		if (**places == '/')
			dir = cli_strdup(*places);
		else if (have_self)
			dir = cli_format("%s%s%s", self, **places ? "/" : "", *places);
		else
			continue;
		found = try_place(dir, name, path);
		longer = cli_format("%s%s%s", searched, *searched ? ", " : "", dir);
		free(searched);
		free(dir);
		searched = longer;
	}
	if (!found)
		snprintf(path, PATH_MAX, "%s", searched);
	free(searched);
	return found;
}

bool locate_preload(char path[PATH_MAX])
{
	static const char *const places[] = {
		"",
		"../lib",
#ifdef MULTIARCH
		"../lib/" MULTIARCH,
#endif
		"../lib64",
		POLLUX_LIBDIR,
		NULL,
	};
	const char *forced = getenv("POLLUX_PRELOAD");

	if (forced && *forced) {
		char *real = realpath(forced, NULL);
		bool found = real && usable(real);

		snprintf(path, PATH_MAX, "%s", found ? real : forced);
		free(real);
		return found;
	}
	return search(places, PRELOAD_NAME, path);
}

bool locate_bench(const char *name, char path[PATH_MAX])
{
	/* "../bench" is where the scripts lie when the command runs from the build folder. */
	static const char *const places[] = {
		"bench",
		"../bench",
		"../libexec/pollux",
		"../lib/pollux",
#ifdef MULTIARCH
		"../lib/" MULTIARCH "/pollux",
#endif
		POLLUX_LIBDIR "/pollux",
		NULL,
	};

	return search(places, name, path);
}
