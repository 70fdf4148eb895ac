/* SPDX-License-Identifier: MIT */
#include "doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <gnu/libc-version.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Numbers that are the same on every architecture since they were given. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#define MEMBARRIER_QUERY 0
#define MEMBARRIER_PRIVATE_EXPEDITED (1 << 3)
#define MEMBARRIER_REGISTER_PRIVATE_EXPEDITED (1 << 4)

#define PROBE_SECONDS 10
#define FEW_DESCRIPTORS 4096

static const char help_text[] =
	"Usage: pollux doctor [--json]\n"
	"       pollux doctor [--json] [--] PROGRAM [ARGUMENT]...\n"
	"Say what this machine permits and what Pollux makes of it; or run PROGRAM with Pollux,\n"
	"and say at its end what was served in the process, what was not, and why.\n"
	"\n"
	"  --json   print the same as JSON; what PROGRAM prints goes to standard error\n"
	"  --help   print this text\n"
	"\n"
	"Exit status: 0 if programs, or PROGRAM, can run on Pollux here, 1 if not, 2 usage\n"
	"error.\n";

struct fact {
	char *name;
	enum state state;
	char *value;
	const char *meaning;
};

static struct fact *facts;
static size_t n_facts;

void doctor_add(const char *name, enum state state, const char *meaning, const char *fmt, ...)
{
	struct fact *f;
	va_list ap;

	facts = realloc(facts, (n_facts + 1) * sizeof(*facts));
	if (!facts)
		abort();
	f = &facts[n_facts++];
	f->name = cli_strdup(name);
	f->state = state;
	f->meaning = meaning;
	va_start(ap, fmt);
	if (vasprintf(&f->value, fmt, ap) < 0)
		f->value = cli_strdup("");
	va_end(ap);
}

static void add_limit_file(const char *name, const char *path, const char *meaning)
{
	char line[128];

	if (machine_read_line(path, line, sizeof(line)))
		doctor_add(name, STATE_OK, meaning, "%s", line);
	else
		doctor_add(name, STATE_NOTE, meaning, "%s cannot be read", path);
}

static void look_at_system(void)
{
	struct machine m;

	machine_describe(&m);
	doctor_add("kernel", STATE_OK,
		   "The reference: Pollux answers as this kernel's family does.", "%s, %s",
		   m.kernel, m.arch);
	doctor_add("C library", STATE_OK,
		   "The drop-in takes the place of its functions in dynamically linked programs.",
		   "glibc %s", gnu_get_libc_version());
	doctor_add(
		"CPUs", m.cpus > 1 ? STATE_OK : STATE_NOTE,
		m.cpus > 1
			? "A waiter spins or yields for a moment before it sleeps (POLLUX_SPIN=0: "
			  "never)."
			: "A waiter yields for a moment before it sleeps (POLLUX_SPIN=0: never).",
		"%d usable by this process (%s)", m.cpus, m.cpu);
}

static void look_at_membarrier(void)
{
#ifdef SYS_membarrier
	long mask = syscall(SYS_membarrier, MEMBARRIER_QUERY, 0, 0);
	bool works = mask >= 0 && mask & MEMBARRIER_PRIVATE_EXPEDITED &&
		     !syscall(SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) &&
		     !syscall(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0);
#else
	bool works = false;
#endif

	doctor_add("membarrier", works ? STATE_OK : STATE_NOTE,
		   works ? "Read-side sections cost about a nanosecond."
			 : "Read-side sections contain a full barrier: every event costs a little "
			   "more.",
		   "private expedited %s", works ? "works" : "is not permitted");
}

static void look_at_rseq(void)
{
	const unsigned int *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	bool registered = size && *size;

	doctor_add("rseq", registered ? STATE_OK : STATE_NOTE,
		   "Left to the C library and the program; Pollux works with and without it.", "%s",
		   registered ? "registered by the C library" : "not registered by the C library");
}

static void look_at_calls(void)
{
	struct timespec zero = {0};
	struct epoll_event ev;
	int ep = epoll_create1(EPOLL_CLOEXEC);
	long rc;

	rc = syscall(SYS_memfd_create, "pollux-doctor", 1u);
	doctor_add("memfd", rc >= 0 ? STATE_OK : STATE_NOTE, "Not needed for events.", "%s",
		   rc >= 0 ? "permitted" : strerror(errno));
	if (rc >= 0)
		close((int)rc);

	rc = syscall(SYS_pidfd_open, getpid(), 0u);
	doctor_add("pidfd", rc >= 0 ? STATE_OK : STATE_NOTE,
		   "A kernel descriptor like any other: the kernel itself waits for it.", "%s",
		   rc >= 0 ? "permitted" : strerror(errno));
	if (rc >= 0)
		close((int)rc);

	rc = ep < 0 ? -1 : syscall(SYS_epoll_pwait2, ep, &ev, 1, &zero, NULL, 8L);
	doctor_add("epoll_pwait2", rc == 0 ? STATE_OK : STATE_NOTE,
		   rc == 0 ? "Waits that involve the kernel keep timeouts in nanoseconds."
			   : "Waits that involve the kernel have timeouts in milliseconds.",
		   "%s", rc == 0 ? "available" : strerror(errno));
	if (ep >= 0)
		close(ep);

	rc = syscall(SYS_close_range, ~0u, ~0u, 0u);
	doctor_add("close_range", rc == 0 ? STATE_OK : STATE_NOTE,
		   rc == 0 ? "Programs that use it are followed."
			   : "Programs that use it get the kernel's own error.",
		   "%s", rc == 0 ? "available" : strerror(errno));
}

static void look_at_limits(void)
{
	struct rlimit rl;

	if (!getrlimit(RLIMIT_NOFILE, &rl))
		doctor_add("RLIMIT_NOFILE", rl.rlim_cur < FEW_DESCRIPTORS ? STATE_NOTE : STATE_OK,
			   "Every eventfd and epoll holds one descriptor number, as on the kernel.",
			   "%llu, can be raised to %llu", (unsigned long long)rl.rlim_cur,
			   (unsigned long long)rl.rlim_max);
	add_limit_file("fs.nr_open", "/proc/sys/fs/nr_open",
		       "What a privileged user may raise RLIMIT_NOFILE to.");
	add_limit_file("max_user_watches", "/proc/sys/fs/epoll/max_user_watches",
		       "Watches of one user. Pollux keeps to the same bound and counts its own.");
}

static void look_at_aio(void)
{
	char nr[32], max[32];

	if (machine_read_line("/proc/sys/fs/aio-nr", nr, sizeof(nr)) &&
	    machine_read_line("/proc/sys/fs/aio-max-nr", max, sizeof(max)))
		doctor_add("aio", STATE_OK,
			   "aio-nr of aio-max-nr. Each program on Pollux keeps to the bound for "
			   "itself; "
			   "POLLUX_AIO_MAX_NR=none lifts it.",
			   "%s of %s kernel requests taken", nr, max);
	else
		doctor_add("aio", STATE_NOTE, "What Pollux does not do itself is refused.",
			   "this kernel was built without it");
}

static void look_at_seccomp(void)
{
	static const char *const modes[] = {"none", "strict", "a filter is active"};
	char line[256];
	unsigned int mode = 3, no_new_privs = 0;
	FILE *f = fopen("/proc/self/status", "re");

	if (f) {
		while (fgets(line, sizeof(line), f)) {
			if (sscanf(line, "Seccomp: %u", &mode) == 1)
				continue;
			sscanf(line, "NoNewPrivs: %u", &no_new_privs);
		}
		fclose(f);
	}
	doctor_add(
		"seccomp", mode == 0 ? STATE_OK : STATE_NOTE,
		mode == 0
			? "No system call is filtered."
			: "A filter may refuse calls; what it refuses is shown in the lines above.",
		"%s%s", mode < 3 ? modes[mode] : "unknown",
		no_new_privs ? ", no new privileges" : "");
}

/* --- the drop-in, from inside ------------------------------------------------------------- */

/* Whether a line of a process's maps has this in it; from: only the one that begins there. */
static bool is_mapped_in(const char *maps, const char *what, unsigned long from)
{
	FILE *f = fopen(maps, "re");
	char line[PATH_MAX + 128];
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, what) && (!from || strtoul(line, NULL, 16) == from);
	if (f)
		fclose(f);
	return found;
}

static bool is_mapped(const char *what, unsigned long from)
{
	return is_mapped_in("/proc/self/maps", what, from);
}

static bool parent_is_starter(void)
{
	char maps[64];

	snprintf(maps, sizeof(maps), "/proc/%d/maps", (int)getppid());
	return is_mapped_in(maps, "/" STARTER_NAME, 0);
}

/* Who does a buffered read: tried, and seen by what is there afterwards. */
static const char *probe_aio(void)
{
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD}, *list = &cb;
	const char *who = "none";
	aio_context_t ctx = 0;
	struct io_event ev;
	char byte;

	if (syscall(SYS_io_setup, 1, &ctx))
		return who;
	cb.aio_fildes = (unsigned int)syscall(SYS_memfd_create, "pollux-doctor", 1u);
	cb.aio_buf = (uintptr_t)&byte;
	cb.aio_nbytes = 1;
	if (syscall(SYS_io_submit, ctx, 1, &list) == 1 &&
	    syscall(SYS_io_getevents, ctx, 1, 1, &ev, NULL) == 1)
		who = is_mapped("[aio]", ctx) ? "kernel" : "inline";
	syscall(SYS_io_destroy, ctx);
	close((int)cb.aio_fildes);
	return who;
}

/* What a child of this command reports about itself, from inside. */
static int probe(void)
{
	int (*fd_served)(int);
	int efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = EPOLLIN, .data = {.u64 = 42}};
	uint64_t value = 1;
	bool works;

	*(void **)&fd_served = dlsym(RTLD_DEFAULT, "pollux_fd_served");
	works = efd >= 0 && ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) &&
		write(efd, &value, sizeof(value)) == sizeof(value);
	memset(&ev, 0, sizeof(ev));
	works = works && epoll_wait(ep, &ev, 1, 1000) == 1 && ev.data.u64 == 42;
	printf("mapped=%d served=%d works=%d aio=%s starter=%d\n", is_mapped("/" PRELOAD_NAME, 0),
	       fd_served && efd >= 0 && fd_served(efd) == 1, works, probe_aio(),
	       parent_is_starter());
	return CLI_OK;
}

struct probed {
	int mapped, served, works;
	/* none, kernel or inline. */
	char aio[16];
	/* It was started by a program with the library for those that only start others. */
	int starter;
};

static const char *const clean[][2] = {{"POLLUX_NO_ADOPT", NULL}, {NULL, NULL}};

/* Runs it; c keeps how it ended. 0 or a negative errno. */
static int run_probe_by(struct child *c, char **argv, const char *const (*env)[2], struct probed *p)
{
	int rc;

	memset(p, 0, sizeof(*p));
	c->argv = argv;
	c->env = env;
	c->limit = PROBE_SECONDS;
	rc = child_run(c);
	if (!rc)
		sscanf(c->out, "mapped=%d served=%d works=%d aio=%15s starter=%d", &p->mapped,
		       &p->served, &p->works, p->aio, &p->starter);
	return rc;
}

static int run_probe(struct child *c, char *self, const char *const (*env)[2], struct probed *p)
{
	char *argv[] = {self, "run", "--", self, "doctor", "--probe", NULL};

	return run_probe_by(c, argv, env, p);
}

/* Who does what, as the environment chooses. */
static void look_at_engines(const char *aio)
{
	static const char *const kernel = "by the kernel's AIO";

	if (!strcmp(aio, "kernel"))
		doctor_add("aio buffered", STATE_OK, "POLLUX_AIO=off.", "%s", kernel);
	else if (!strcmp(aio, "inline"))
		doctor_add("aio buffered", STATE_OK, "As the kernel does it, with less around it.",
			   "within io_submit");
	else
		doctor_add("aio buffered", STATE_NOTE,
			   "io_setup is refused, or a read did not end.", "not at all");
	doctor_add("aio direct", STATE_OK, "Reads and writes with O_DIRECT.", "%s", kernel);
	doctor_add("aio poll", STATE_OK, "And all that is unusual.", "%s", kernel);
}

static bool is_set(const char *variable, const char *value)
{
	const char *set = getenv(variable);

	return set && !strcmp(set, value);
}

/* Tries the library for programs that only start others, which is at `path` if it is there. */
static void try_starter(char *self, const char *path)
{
	static const char *const whole = "Programs that only start others get the drop-in as well.";
	char *by_sh[] = {self, "run", "--", "sh", "-c", "\"$0\" doctor --probe; exit $?",
			 self, NULL};
	char *by_timeout[] = {self, "run", "--", "timeout", "60", self, "doctor", "--probe", NULL};
	char **by[] = {by_sh, by_timeout};
	bool all = is_set("POLLUX_LOAD", "all"), stats = is_set("POLLUX_STATS", "1");
	struct child child = {0};
	struct probed p;
	size_t i;

	if (access(path, R_OK)) {
		doctor_add("starter", STATE_NOTE, whole, "%s: %s", path, strerror(errno));
		return;
	}
	if (all || stats) {
		doctor_add("starter", STATE_OK, whole, "%s is there, but %s", path,
			   all ? "POLLUX_LOAD=all" : "POLLUX_STATS=1");
		return;
	}
	for (i = 0; i < sizeof(by) / sizeof(by[0]); i++)
		if (run_probe_by(&child, by[i], clean, &p) || p.starter || !p.served)
			break;
	if (i == sizeof(by) / sizeof(by[0]))
		doctor_add("starter", STATE_NOTE, whole,
			   "%s is loaded neither into sh nor into timeout", path);
	else if (!p.served)
		doctor_add(
			"starter", STATE_NOTE,
			"What is started by programs that only start others is left to the kernel.",
			"%s does not work in %s", path, by[i][3]);
	else
		doctor_add("starter", STATE_OK,
			   "What only starts others gets it, and what that starts the drop-in.",
			   "%s is loaded into %s", path, by[i][3]);
}

/* It lies beside the drop-in. */
static void look_at_starter(char *self, const char *preload)
{
	int folder = (int)(strrchr(preload, '/') - preload);
	char *path = cli_format("%.*s/%s", folder, preload, STARTER_NAME);

	try_starter(self, path);
	free(path);
}

static void look_at_drop_in(void)
{
	char self[PATH_MAX], path[PATH_MAX];
	struct child child = {0};
	struct probed p;
	char text[128];
	int rc;

	if (!locate_self(self)) {
		doctor_add("drop-in", STATE_FAIL, "Without /proc it cannot be found.",
			   "/proc/self/exe cannot be read");
		return;
	}
	if (!locate_preload(path)) {
		doctor_add("drop-in", STATE_FAIL,
			   "Install Pollux wholly, or name the library in POLLUX_PRELOAD.",
			   PRELOAD_NAME " was not found in: %s", path);
		return;
	}
	rc = run_probe(&child, self, clean, &p);
	if (rc) {
		doctor_add("drop-in", STATE_FAIL, "Nothing could be tried.",
			   "cannot start a program: %s", strerror(-rc));
		return;
	}
	child_describe(&child, text, sizeof(text));
	/* The loader's own words, if there are any, fit better than ours. */
	child.err[strcspn(child.err, "\n")] = '\0';
	if (child.timed_out || child.status)
		doctor_add("drop-in", STATE_FAIL, "Programs cannot run on Pollux here.",
			   "a small program run with %s %s%s%s", path, text, *child.err ? ": " : "",
			   child.err);
	else if (!p.mapped)
		doctor_add("drop-in", STATE_FAIL, "Programs run on the plain kernel only.",
			   "the loader does not load %s%s%s", path, *child.err ? ": " : "",
			   child.err);
	else if (!p.served || !p.works)
		doctor_add("drop-in", STATE_FAIL, "Programs cannot profit from Pollux here.",
			   "%s is loaded, but %s", path,
			   p.works ? "an eventfd is left to the kernel"
				   : "an event did not arrive");
	else
		doctor_add("drop-in", STATE_OK, "'pollux run -- PROGRAM' works.",
			   "%s is loaded and serves events", path);
	if (p.mapped)
		look_at_starter(self, path);
	if (*p.aio)
		look_at_engines(p.aio);
}

static void print_table(void)
{
	static const char *const plain[] = {"ok  ", "note", "FAIL"};
	static const char *const coloured[] = {
		"\033[32mok  \033[0m",
		"\033[33mnote\033[0m",
		"\033[33;1mFAIL\033[0m",
	};
	const char *const *marks = isatty(STDOUT_FILENO) ? coloured : plain;

	for (size_t i = 0; i < n_facts; i++)
		printf("%s  %-17s %s\n%24s%s\n", marks[facts[i].state], facts[i].name,
		       facts[i].value, "", facts[i].meaning);
}

static void print_json(bool usable)
{
	static const char *const states[] = {"ok", "note", "fail"};
	struct json j;

	json_start(&j, stdout);
	json_open(&j, NULL, '{');
	json_string(&j, "version", CLI_VERSION);
	json_bool(&j, "usable", usable);
	json_open(&j, "facts", '[');
	for (size_t i = 0; i < n_facts; i++) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", facts[i].name);
		json_string(&j, "state", states[facts[i].state]);
		json_string(&j, "value", facts[i].value);
		json_string(&j, "meaning", facts[i].meaning);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_close(&j, '}');
}

static void look_at_machine(void)
{
	look_at_system();
	look_at_membarrier();
	look_at_rseq();
	look_at_calls();
	look_at_limits();
	look_at_aio();
	look_at_seccomp();
	look_at_drop_in();
}

int cmd_doctor(int argc, char **argv)
{
	enum {
		OPT_JSON = 256,
		OPT_PROBE,
		OPT_HELP,
	};
	static const struct option longs[] = {
		{"json", no_argument, NULL, OPT_JSON},
		{"probe", no_argument, NULL, OPT_PROBE},
		{"help", no_argument, NULL, OPT_HELP},
		{NULL, 0, NULL, 0},
	};
	bool json = false, usable = true;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		switch (c) {
		case OPT_JSON:
			json = true;
			break;
		case OPT_PROBE:
			return probe();
		case OPT_HELP:
			fputs(help_text, stdout);
			return CLI_OK;
		default:
			cli_error("doctor: unknown option '%s'", argv[optind - 1]);
			return cli_try_help("doctor", CLI_USAGE);
		}
	}
	if (optind < argc)
		doctor_program(argv + optind, json);
	else
		look_at_machine();

	for (size_t i = 0; i < n_facts; i++)
		usable &= facts[i].state != STATE_FAIL;
	if (json)
		print_json(usable);
	else
		print_table();
	for (size_t i = 0; i < n_facts; i++) {
		free(facts[i].name);
		free(facts[i].value);
	}
	free(facts);
	return usable ? CLI_OK : CLI_FAILED;
}
