/* SPDX-License-Identifier: MIT */
/*
 * Linux AIO without anything in its way: the system calls themselves, on a file of
 * this program's own, whose blocks can be told from each other.
 */
#include "bench.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define MAX_DEPTH 32
#define SETUP_NS 500000000u

struct mode {
	const char *name;
	const char *what;
	uint64_t events;
	uint64_t file_size;
	unsigned int block, depth, batch;
	bool reads, writes, direct;
};

static const struct mode modes[] = {
	{"pread", "1 KiB reads from tmpfs, one at a time", 500000, 4 << 20, 1024, 1, 1, true, false,
	 false},
	{"pwrite", "1 KiB writes to tmpfs, one at a time", 500000, 4 << 20, 1024, 1, 1, false, true,
	 false},
	{"depth", "1 KiB reads and writes on tmpfs, 32 in flight, 16 at a time", 1000000, 4 << 20,
	 1024, 32, 16, true, true, false},
	{"direct", "4 KiB O_DIRECT reads and writes on disk, 32 in flight", 20000, 64 << 20, 4096,
	 32, 1, true, true, true},
	{"setup", "io_setup and io_destroy (at most half a second)", 100000, 0, 0, 0, 0, false,
	 false, false},
};
#define N_MODES (sizeof(modes) / sizeof(modes[0]))

static struct {
	const char *name;
	const struct mode *mode;
	uint64_t events;
	const char *dir;
} opt = {.name = "pread"};

static long io_setup(unsigned int nr, aio_context_t *ctx)
{
	return syscall(SYS_io_setup, nr, ctx);
}

static long io_destroy(aio_context_t ctx)
{
	return syscall(SYS_io_destroy, ctx);
}

static void make_context(aio_context_t *ctx)
{
	*ctx = 0;
	if (io_setup(MAX_DEPTH, ctx))
		bench_die("io_setup: %s", strerror(errno));
}

/* The ring of a context of the kernel's is a mapping of that name. */
static bool kernel_ring(aio_context_t ctx)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	if (!f)
		bench_die("/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		char *end;

		if (strtoull(line, &end, 16) <= ctx && strtoull(end + 1, NULL, 16) > ctx)
			found = strstr(line, " /[aio]") != NULL;
	}
	fclose(f);
	return found;
}

static void print_served(void)
{
	bool preload = dlsym(RTLD_DEFAULT, "pollux_fd_served") != NULL;
	aio_context_t ctx;

	make_context(&ctx);
	printf("preload=%d served=%d ", preload, preload && !kernel_ring(ctx));
	(void)io_destroy(ctx);
}

static uint64_t pattern(uint64_t offset)
{
	return offset * 0x9e3779b97f4a7c15u;
}

/* Of each block, the first and the last word say where it belongs. */
static void stamp(void *block, uint64_t offset)
{
	uint64_t *word = block;
	unsigned int last = opt.mode->block / sizeof(*word) - 1;

	word[0] = pattern(offset);
	word[last] = pattern(offset + last * sizeof(*word));
}

/* A nameless file of the pattern, in the cache unless it is for direct I/O. */
static int make_file(void)
{
	char *path = NULL;
	struct statfs fs;
	void *block;
	int fd, flags;

	if (asprintf(&path, "%s/pollux-aio.XXXXXX", opt.dir) < 0)
		bench_die("out of memory");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT)
			bench_skip("there is no folder for the file");
		bench_die("%s: %s", path, strerror(errno));
	}
	unlink(path);
	free(path);
	if (fstatfs(fd, &fs))
		bench_die("fstatfs: %s", strerror(errno));
	if (!opt.mode->direct && fs.f_type != TMPFS_MAGIC)
		bench_skip("the folder for the file is not on tmpfs");
	if (posix_memalign(&block, 4096, opt.mode->block))
		bench_die("out of memory");
	memset(block, 'p', opt.mode->block);
	for (uint64_t o = 0; o < opt.mode->file_size; o += opt.mode->block) {
		stamp(block, o);
		if (pwrite(fd, block, opt.mode->block, (off_t)o) != (ssize_t)opt.mode->block)
			bench_die("filling the file: %s", strerror(errno));
	}
	free(block);
	if (opt.mode->direct) {
		if (fsync(fd))
			bench_die("fsync: %s", strerror(errno));
		flags = fcntl(fd, F_GETFL);
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT))
			bench_skip("the disk has no O_DIRECT");
	}
	return fd;
}

struct slot {
	struct iocb iocb;
	void *buf;
};

/* Any block, read or written. */
static void prepare(struct slot *s, int fd, uint64_t *random)
{
	const struct mode *m = opt.mode;
	uint64_t offset;
	bool write;

	(void)bench_random(random);
	offset = (*random >> 16) % (m->file_size / m->block) * m->block;
	write = m->writes && (!m->reads || (*random & 1));
	memset(&s->iocb, 0, sizeof(s->iocb));
	s->iocb.aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
	s->iocb.aio_fildes = (uint32_t)fd;
	s->iocb.aio_buf = (uintptr_t)s->buf;
	s->iocb.aio_nbytes = m->block;
	s->iocb.aio_offset = (int64_t)offset;
	s->iocb.aio_data = (uintptr_t)s;
	if (write)
		stamp(s->buf, offset);
}

static void check(const struct io_event *ev)
{
	const struct slot *s = (const struct slot *)(uintptr_t)ev->data;
	const uint64_t *word = s->buf;
	uint64_t offset = (uint64_t)s->iocb.aio_offset;
	unsigned int last = opt.mode->block / sizeof(*word) - 1;

	if (ev->obj != (uintptr_t)&s->iocb || ev->res != opt.mode->block || ev->res2)
		bench_die("a wrong event: result %lld", (long long)ev->res);
	if (word[0] != pattern(offset) || word[last] != pattern(offset + last * sizeof(*word)))
		bench_die("wrong data at offset %" PRIu64, offset);
}

/* One at a time, or as many in flight as the mode says, submitted in batches. */
static void transfer(int fd)
{
	const struct mode *m = opt.mode;
	struct slot slots[MAX_DEPTH], *idle[MAX_DEPTH];
	struct iocb *batch[MAX_DEPTH];
	struct io_event ev[MAX_DEPTH];
	uint64_t random = BENCH_SEED, submitted = 0, done = 0;
	unsigned int n_idle = m->depth;
	aio_context_t ctx;

	for (unsigned int i = 0; i < m->depth; i++) {
		if (posix_memalign(&slots[i].buf, 4096, m->block))
			bench_die("out of memory");
		memset(slots[i].buf, 'p', m->block);
		idle[i] = &slots[i];
	}
	make_context(&ctx);
	while (done < opt.events) {
		while (n_idle >= m->batch && submitted < opt.events) {
			long k = 0, n;

			for (; k < (long)m->batch && submitted + (uint64_t)k < opt.events; k++) {
				struct slot *s = idle[--n_idle];

				prepare(s, fd, &random);
				batch[k] = &s->iocb;
			}
			n = syscall(SYS_io_submit, ctx, k, batch);
			if (n != k)
				bench_die("io_submit of %ld: %ld %s", k, n, strerror(errno));
			submitted += (uint64_t)k;
		}
		{
			uint64_t flying = submitted - done;
			long min = (long)(flying < m->batch ? flying : m->batch);
			long n = syscall(SYS_io_getevents, ctx, min, (long)m->depth, ev, NULL);

			if (n < min)
				bench_die("io_getevents: %ld %s", n, strerror(errno));
			for (long i = 0; i < n; i++) {
				check(&ev[i]);
				idle[n_idle++] = (struct slot *)(uintptr_t)ev[i].data;
			}
			done += (uint64_t)n;
		}
	}
	if (io_destroy(ctx))
		bench_die("io_destroy: %s", strerror(errno));
	for (unsigned int i = 0; i < m->depth; i++)
		free(slots[i].buf);
}

static void setups(void)
{
	uint64_t start = bench_now(), n = 0;

	do {
		aio_context_t ctx;

		make_context(&ctx);
		if (io_destroy(ctx))
			bench_die("io_destroy: %s", strerror(errno));
		n++;
	} while (n < opt.events && bench_now() - start < SETUP_NS);
	opt.events = n;
}

static void list_modes(void)
{
	for (size_t i = 0; i < N_MODES; i++)
		printf("                %-7s %s\n", modes[i].name, modes[i].what);
}

static const char about[] = "The cost of Linux AIO through its system calls.";

static const struct bench_option options[] = {
	{"mode", "what is done", .text = &opt.name, .value = "MODE", .list = list_modes},
	{"events", "operations or pairs; what is usual depends on the mode", .number = &opt.events,
	 .min = 1, .max = UINT32_MAX},
	{"dir", "folder of the file (usually /dev/shm; direct: TMPDIR, /var/tmp)", .text = &opt.dir,
	 .value = "DIR"},
	{.name = NULL},
};

static void complete_options(void)
{
	for (size_t i = 0; i < N_MODES; i++)
		if (!strcmp(opt.name, modes[i].name))
			opt.mode = &modes[i];
	if (!opt.mode)
		bench_usage_error("there is no mode '%s'", opt.name);
	if (!opt.events)
		opt.events = opt.mode->events;
	if (!opt.dir && opt.mode->direct)
		opt.dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp";
	if (!opt.dir)
		opt.dir = "/dev/shm";
}

int main(int argc, char **argv)
{
	uint64_t start, cpu;
	double seconds;
	int fd = -1;

	bench_options(argc, argv, about, options);
	complete_options();
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	if (opt.mode->block)
		fd = make_file();
	cpu = bench_cpu();
	start = bench_now();
	if (opt.mode->block)
		transfer(fd);
	else
		setups();
	seconds = bench_seconds(start, bench_now());
	cpu = bench_cpu() - cpu;

	printf("program=aio_micro ");
	print_served();
	printf("mode=%s events=%" PRIu64
	       " seconds=%.6f rate=%.1f ns_per_op=%.1f cpu_ns_per_op=%.1f ok=1\n",
	       opt.mode->name, opt.events, seconds, (double)opt.events / seconds,
	       seconds * 1e9 / (double)opt.events, (double)cpu / (double)opt.events);
	if (fd >= 0)
		close(fd);
	return 0;
}
