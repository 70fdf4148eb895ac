/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/preload.h"

static const char help_text[] =
	"Usage: pollux run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
	"Run PROGRAM with Pollux in place of the kernel's eventfd, epoll and AIO.\n"
	"\n"
	"  --no-adopt=KIND   leave objects of KIND to the kernel: eventfd, epoll, aio, timerfd\n"
	"                    or all; may be given several times, or a list:\n"
	"                    --no-adopt=eventfd,epoll\n"
	"                    pipe is accepted, does nothing, and will be removed\n"
	"  --adopt=KIND      serve objects of KIND, which is not done otherwise: inline "
	"(descriptors\n"
	"                    of Go programs, and Rust's that call epoll by themselves); forked,\n"
	"                    pipe and watched-pipe are accepted, do nothing, and will be removed\n"
	"  --adopt=hot       cache an eventfd when it is written to often (the default);\n"
	"                    --adopt=always: from its creation; --adopt=random:SEED, for tests: at\n"
	"                    every fourth write, by chance\n"
	"  --aio=MODE        how Linux AIO is done: auto (the default) or off (as\n"
	"                    --no-adopt=aio); async is accepted, does nothing, and will be\n"
	"                    removed\n"
	"  --aio-max-nr=none set no limit on the events of AIO contexts\n"
	"  --load=WHICH      what PROGRAM starts is loaded with the drop-in: needed (the default:\n"
	"                    not programs that have no use for it, such as cat) or all\n"
	"  --stats           print statistics to standard error when the program ends\n"
	"  --no-spin         sleep at once, without a short spin before\n"
	"  --force           if the drop-in cannot get into PROGRAM, run PROGRAM without it\n"
	"  --help            print this text\n"
	"\n"
	"PROGRAM takes the place of this command, so its exit status and its signals are its\n"
	"own. Otherwise the exit status is\n"
	"  125   PROGRAM cannot be run with Pollux, or the options were wrong\n"
	"  126   PROGRAM was found but cannot be executed\n"
	"  127   PROGRAM was not found\n"
	"\n"
	"POLLUX_PRELOAD names the drop-in library to use instead of the one that belongs to\n"
	"this command.\n";

/* The words of pipes do nothing. */
static const char *const no_adopt_kinds[] = {"eventfd", "epoll", "aio", "pipe",
					     "timerfd", "all",	 NULL};
static const char *const adopt_kinds[] = {"pipe",   "watched-pipe", "forked", "inline",
					  "always", "hot",	    NULL};

/* "random:" and a number. */
static bool is_random(const char *kind, size_t len)
{
	static const char word[] = "random:";
	const size_t at = sizeof(word) - 1;

	return len > at && !memcmp(kind, word, at) && strspn(kind + at, "0123456789") == len - at;
}

static bool known_kind(const char *const *kinds, const char *kind, size_t len)
{
	if (kinds == adopt_kinds && is_random(kind, len))
		return true;
	for (; *kinds; kinds++)
		if (strlen(*kinds) == len && !memcmp(*kinds, kind, len))
			return true;
	return false;
}

/* Appends to a list in the environment; false on an unknown kind. */
static bool add_kinds(const char *variable, const char *const *kinds, const char *option,
		      const char *list)
{
	const char *old = getenv(variable);
	char *all;

	for (const char *kind = list;; kind++) {
		size_t len = strcspn(kind, ",");

		if (!known_kind(kinds, kind, len)) {
			cli_error("run: %s takes %s, not '%.*s'", option,
				  kinds == adopt_kinds ? "inline, always, hot or random:SEED"
						       : "eventfd, epoll, aio, timerfd or all",
				  (int)len, kind);
			return false;
		}
		kind += len;
		if (!*kind)
			break;
	}
	all = cli_format("%s%s%s", old ? old : "", old && *old ? "," : "", list);
	setenv(variable, all, 1);
	free(all);
	return true;
}

/* An option whose value is one of a few words, and goes into the environment. */
static bool set_word(const char *option, const char *variable, const char *const *words,
		     const char *value)
{
	char *list = cli_strdup("");

	for (size_t i = 0; words[i]; i++) {
		char *longer;

		if (!strcmp(words[i], value)) {
			setenv(variable, value, 1);
			free(list);
			return true;
		}
		longer = cli_format("%s%s%s", list,
				    !i		   ? ""
				    : words[i + 1] ? ", "
						   : " or ",
				    words[i]);
		free(list);
		list = longer;
	}
	cli_error("run: --%s takes %s, not '%s'", option, list, value);
	free(list);
	return false;
}

/* Puts the drop-in first in LD_PRELOAD and keeps what is there. */
static bool set_preload(const char *path)
{
	const char *old = getenv("LD_PRELOAD");
	size_t len = strlen(path);
	char *all;

	if (strpbrk(path, " :")) {
		cli_error("the loader cannot preload a library whose path has a blank or a colon: "
			  "'%s'",
			  path);
		return false;
	}
	if (old && !strncmp(old, path, len) && (!old[len] || strchr(" :", old[len])))
		return true;
	all = cli_format("%s%s%s", path, old && *old ? ":" : "", old ? old : "");
	setenv("LD_PRELOAD", all, 1);
	free(all);
	return true;
}

/* With the drop-in, or what the program has use for in its place: preload is its path, or NULL. */
static int execute(const struct program *p, const char *name, char **argv, const char *preload)
{
	const struct plx_execution x = {.dir = AT_FDCWD, .path = name, .search = true};
	struct plx_needless n;
	int err;

	plx_needless_begin(preload);

	char *room[plx_needless(&n, &x, environ)];

	/* The program itself always gets a library. */
	execvpe(name, argv, n.load == PLX_LOAD_STARTER ? plx_needless_env(&n, room) : environ);
	err = errno;
	cli_error("%s: %s", name, strerror(err));
	if (err == ENOENT && !access(p->path, F_OK))
		fprintf(stderr,
			"The file exists; the loader or interpreter it asks for does not.\n");
	return err == ENOENT ? RUN_NOT_FOUND : RUN_NOT_EXECUTABLE;
}

int cmd_run(int argc, char **argv)
{
	enum {
		OPT_NO_ADOPT = 256,
		OPT_AIO,
		OPT_AIO_MAX_NR,
		OPT_ADOPT,
		OPT_LOAD,
		OPT_STATS,
		OPT_NO_SPIN,
		OPT_FORCE,
		OPT_HELP,
	};
	static const struct option longs[] = {
		{"no-adopt", required_argument, NULL, OPT_NO_ADOPT},
		{"aio", required_argument, NULL, OPT_AIO},
		{"aio-max-nr", required_argument, NULL, OPT_AIO_MAX_NR},
		{"adopt", required_argument, NULL, OPT_ADOPT},
		{"load", required_argument, NULL, OPT_LOAD},
		{"stats", no_argument, NULL, OPT_STATS},
		{"no-spin", no_argument, NULL, OPT_NO_SPIN},
		{"force", no_argument, NULL, OPT_FORCE},
		{"help", no_argument, NULL, OPT_HELP},
		{NULL, 0, NULL, 0},
	};
	static const char *const modes[] = {"auto", "async", "off", NULL};
	static const char *const limits[] = {"none", NULL};
	static const char *const loads[] = {"needed", "all", NULL};
	char preload[PATH_MAX];
	struct program program;
	bool force = false;
	const char *name;
	int c;

	opterr = 0;
	/* '+': options after the program belong to it. */
	while ((c = getopt_long(argc, argv, "+:", longs, NULL)) != -1) {
		switch (c) {
		case OPT_NO_ADOPT:
			if (!add_kinds("POLLUX_NO_ADOPT", no_adopt_kinds, "--no-adopt", optarg))
				return cli_try_help("run", RUN_REFUSED);
			break;
		case OPT_ADOPT:
			if (!add_kinds("POLLUX_ADOPT", adopt_kinds, "--adopt", optarg))
				return cli_try_help("run", RUN_REFUSED);
			break;
		case OPT_AIO:
			if (!set_word("aio", "POLLUX_AIO", modes, optarg))
				return cli_try_help("run", RUN_REFUSED);
			break;
		case OPT_AIO_MAX_NR:
			if (!set_word("aio-max-nr", "POLLUX_AIO_MAX_NR", limits, optarg))
				return cli_try_help("run", RUN_REFUSED);
			break;
		case OPT_LOAD:
			if (!set_word("load", "POLLUX_LOAD", loads, optarg))
				return cli_try_help("run", RUN_REFUSED);
			break;
		case OPT_STATS:
			setenv("POLLUX_STATS", "1", 1);
			break;
		case OPT_NO_SPIN:
			setenv("POLLUX_SPIN", "0", 1);
			break;
		case OPT_FORCE:
			force = true;
			break;
		case OPT_HELP:
			fputs(help_text, stdout);
			return CLI_OK;
		case ':':
			cli_error("run: %s needs a value", argv[optind - 1]);
			return cli_try_help("run", RUN_REFUSED);
		default:
			cli_error("run: unknown option '%s'", argv[optind - 1]);
			return cli_try_help("run", RUN_REFUSED);
		}
	}
	if (optind >= argc) {
		cli_error("run: which program?");
		return cli_try_help("run", RUN_REFUSED);
	}
	name = argv[optind];

	program_examine(name, &program);
	switch (program.state) {
	case PROGRAM_OK:
		break;
	case PROGRAM_NOT_FOUND:
		cli_error("%s: %s", name, program.why);
		return RUN_NOT_FOUND;
	case PROGRAM_NOT_EXECUTABLE:
		cli_error("%s: %s", name, program.why);
		return RUN_NOT_EXECUTABLE;
	case PROGRAM_UNREACHABLE:
		if (force)
			return execute(&program, name, argv + optind, NULL);
		cli_error("%s: %s", name, program.why);
		fprintf(stderr, "'pollux run --force' runs it without Pollux.\n");
		return RUN_REFUSED;
	}
	if (!locate_preload(preload)) {
		if (getenv("POLLUX_PRELOAD"))
			cli_error("POLLUX_PRELOAD names '%s', which cannot be read", preload);
		else
			cli_error("%s was not found in: %s", PRELOAD_NAME, preload);
		return RUN_REFUSED;
	}
	if (!set_preload(preload))
		return RUN_REFUSED;
	return execute(&program, name, argv + optind, preload);
}
