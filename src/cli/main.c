/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <string.h>

static const char help_text[] =
	"Usage: pollux COMMAND [ARGUMENT]...\n"
	"Linux epoll in user space: event objects signalled and waited for without the kernel.\n"
	"\n"
	"Commands:\n"
	"  run       run a program with Pollux in place of the kernel's eventfd and epoll\n"
	"  bench     measure the kernel and Pollux in turn on this machine\n"
	"  doctor    say what this machine permits and what Pollux makes of it\n"
	"  version   print the version\n"
	"  help      print this text, or that of one command: pollux help run\n"
	"\n"
	"'pollux COMMAND --help' explains a command.\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 usage error. 'pollux run' has its own: see its "
	"help.\n";

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"run", cmd_run},
	{"bench", cmd_bench},
	{"doctor", cmd_doctor},
};

static int dispatch(const char *name, int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].run(argc, argv);
	cli_error("there is no command '%s'", name);
	return cli_try_help(NULL, CLI_USAGE);
}

static int cmd_help(int argc, char **argv)
{
	char help[] = "--help";
	char *args[] = {argc > 1 ? argv[1] : NULL, help, NULL};

	if (argc > 2) {
		cli_error("help takes one command, not %d", argc - 1);
		return CLI_USAGE;
	}
	if (argc < 2 || !strcmp(argv[1], "help") || !strcmp(argv[1], "--help")) {
		fputs(help_text, stdout);
		return CLI_OK;
	}
	if (!strcmp(argv[1], "version")) {
		printf("Usage: pollux version\nPrint the version.\n");
		return CLI_OK;
	}
	return dispatch(argv[1], 2, args);
}

static int cmd_version(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--help")) {
		printf("Usage: pollux version\nPrint the version.\n");
		return CLI_OK;
	}
	if (argc > 1) {
		cli_error("version takes no argument, not '%s'", argv[1]);
		return CLI_USAGE;
	}
	printf("pollux %s\n", CLI_VERSION);
	return CLI_OK;
}

int main(int argc, char **argv)
{
	const char *name;
	int status;

	if (argc < 2) {
		fputs(help_text, stderr);
		return CLI_USAGE;
	}
	name = argv[1];
	if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
		status = cmd_help(argc - 1, argv + 1);
	else if (!strcmp(name, "version") || !strcmp(name, "--version") || !strcmp(name, "-V"))
		status = cmd_version(argc - 1, argv + 1);
	else
		status = dispatch(name, argc - 1, argv + 1);
	/* Output that did not reach its file must not look like success. */
	if (fflush(stdout) && status == CLI_OK) {
		perror("pollux: standard output");
		status = CLI_FAILED;
	}
	return status;
}
