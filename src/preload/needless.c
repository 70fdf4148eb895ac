/* SPDX-License-Identifier: MIT */
/*
 * Programs that have no use for the drop-in, and are started without it.
 *
 * Loading it is a sixth of the life of a small program like true or cat. So whatever executes a
 * program here (exec.c, syscall.c) looks at the file first, and when nothing in it can make an
 * object that we serve, or start another program, our entry of LD_PRELOAD is left out of the
 * environment that it gets. Other entries stay, in their order.
 *
 * A program that makes nothing, but starts others, as shells do, needs somebody who does the same
 * for those. That is a small library beside the drop-in, libpollux-starter.so (src/starter), whose
 * name then stands in our entry. It judges by the same code. The two names are equally long, so
 * that it can put the drop-in's back, in the place, before the program sees its environment: every
 * environment that a program has, or hands on past us, names the drop-in.
 *
 * A program of another C library, or for another machine or word size, cannot load either library:
 * musl's loader ends it then, with 127. Its interpreter is not the one of this process, and so our
 * entry is left out whatever else is said.
 *
 * Argument. All else that is decided here is about speed alone. A program without us runs on the
 * kernel: what it inherits has become the kernel's before (plx_before_exec), and what it makes is
 * the kernel's own. A wrong or old verdict therefore can only leave a program on the kernel, or
 * give it a library that it does not need. It still should be right, so what is judged is narrow:
 *
 *   - a dynamically linked ELF file for this machine and this C library, without privileges, which
 *     everybody may execute, or a script that names such a file;
 *   - a function of libc can only be called by its name, which stands at the end of a string
 *     in the table of dynamic strings (linkers let a string be the end of another). If no string
 *     of the program ends with a name of `names`, nor one of the libraries that it needs, nor of
 *     those that are preloaded beside us, then none of these functions is called;
 *   - libraries are looked for where the system has its own. One that is not there, or could be
 *     found elsewhere (DT_RUNPATH, LD_LIBRARY_PATH), leaves the question open: we are loaded.
 *     Libraries of libc are not looked into: they define the names. (What they load by themselves,
 *     for names of users or character sets, is not asked about.)
 *
 * The place is unkind: the child of a vfork, in the memory of its parent, on any stack, in a signal
 * handler perhaps. So there are only bare system calls, no lock, and no memory but the stack and,
 * while a file is judged, a few pages: a handler's stack may be small. errno is not touched. The
 * calls are those that the loader makes for every program, and rt_sigprocmask and rt_sigaction,
 * which libc's posix_spawn makes: who may start one under a seccomp filter may make them. After a
 * filter that we have seen nothing is judged any more.
 *
 * The environment is walked here where the kernel would have walked it, and a bad pointer in it has
 * to be the kernel's EFAULT; so the kernel is asked about each page first (readable).
 */
#include "preload/preload.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/inject.h"
#include "base/sys.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#define LIBDIR "lib/x86_64-linux-gnu/"
#else
#define MACHINE EM_AARCH64
#define LOADER "/lib/ld-linux-aarch64.so.1"
#define LIBDIR "lib/aarch64-linux-gnu/"
#endif

/*
 * Beyond any of these bounds we are loaded. The strings are those of all files together: looking at
 * more would take longer than we do to load.
 */
#define ENV_MAX 256
#define ENV_FOREIGN_MAX 4096
#define LIST_MAX 1024
#define PATH_LEN 256
#define STRINGS_MAX (24u << 10)
#define NEEDED_MAX 16
#define LIBRARIES_MAX 8
#define NAME_LEN 40

/* Read at a time: the headers of a program, its dynamic section. */
#define CHUNK 1024

/* What has been a regular file a moment ago may be a pipe now. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* What is known of a file, all in one word of a cache; 0 there: nothing. */
#define JUDGED 1u
/* It may have use for the drop-in, or cannot be judged. */
#define USE_WHOLE 2u
/* It starts programs. */
#define USE_STARTS 4u
/* The libraries that were looked at have to be those that it gets. */
#define AS_FOUND 8u
/* It cannot load a library of ours. */
#define FOREIGN 16u
#define FLAGS 31u

/* As many interpreters of interpreters as the kernel follows. */
#define SCRIPTS_MAX 5

/*
 * With one of these a program has, or may have, use for us:
 *   it makes what we serve       epoll_create... eventfd io_setup io_queue_init
 *   it makes any system call     syscall
 *   it starts programs, which would start without us then
 *                                exec... ..._spawn... popen system wordexp
 *   it loads code, or finds functions by their names
 *                                dlopen dlmopen dlsym dlvsym
 *   it is written in Go, whose runtime starts programs by system calls of its own
 *                                crosscall2 (each dynamic Go program has it)
 * None is the end of another: fexecve is an execve here.
 */
static const struct {
	char name[14];
	uint8_t length, use;
} names[] = {
#define NAME(name, use)                                                                            \
	{                                                                                          \
		name, sizeof(name) - 1, use                                                        \
	}
	NAME("epoll_create", USE_WHOLE),  NAME("epoll_create1", USE_WHOLE),
	NAME("eventfd", USE_WHOLE),	  NAME("io_setup", USE_WHOLE),
	NAME("io_queue_init", USE_WHOLE), NAME("syscall", USE_WHOLE),
	NAME("dlopen", USE_WHOLE),	  NAME("dlmopen", USE_WHOLE),
	NAME("dlsym", USE_WHOLE),	  NAME("dlvsym", USE_WHOLE),
	NAME("crosscall2", USE_WHOLE),	  NAME("execl", USE_STARTS),
	NAME("execle", USE_STARTS),	  NAME("execlp", USE_STARTS),
	NAME("execv", USE_STARTS),	  NAME("execve", USE_STARTS),
	NAME("execvp", USE_STARTS),	  NAME("execvpe", USE_STARTS),
	NAME("execveat", USE_STARTS),	  NAME("posix_spawn", USE_STARTS),
	NAME("posix_spawnp", USE_STARTS), NAME("pidfd_spawn", USE_STARTS),
	NAME("pidfd_spawnp", USE_STARTS), NAME("popen", USE_STARTS),
	NAME("system", USE_STARTS),	  NAME("wordexp", USE_STARTS),
#undef NAME
};

/* How the names of the two libraries end, where they differ. */
static const char dropin_is[] PLX_CHILD_CONST = "preload.so";
static const char starter_is[] PLX_CHILD_CONST = "starter.so";
#define KIND_LEN (sizeof(dropin_is) - 1)

/* The drop-in's path and its length; NULL before it is known. */
static PLX_START_PAGE const char *own_name;
static PLX_START_PAGE size_t own_length;

/* The path of the loader of this process. */
static PLX_START_PAGE const char *own_loader;

PLX_START_CODE void plx_needless_begin(const char *dropin)
{
	const struct link_map *m = _r_debug.r_map;
	uintptr_t base = plx_auxv(AT_BASE);

	/* If the loader was started as the program itself there is no base. */
	while (m && (!base || m->l_addr != base))
		m = m->l_next;
	own_loader = m && m->l_name[0] == '/' ? m->l_name : LOADER;
	own_length = dropin ? strlen(dropin) : 0;
	own_name = own_length ? dropin : NULL;
}

/* Set by a seccomp filter. */
static uint32_t never;

void plx_needless_never(void)
{
	plx_store(&never, 1);
}

/* --- memory of the program ----------------------------------------------------------------- */

/* Pages that have been found readable. */
struct pages {
	uintptr_t known[4];
};

static PLX_CHILD_CODE bool readable(struct pages *pages, const void *p)
{
	uintptr_t page = (uintptr_t)p >> 12;
	uintptr_t *known = &pages->known[page % 4];

	/* 0 stands for none, and nobody has the first page. */
	if (*known == page && page)
		return true;
	if (!plx_string_readable((uintptr_t)p))
		return false;
	*known = page;
	return true;
}

/* The length of a string up to a limit; -1: longer, or not readable. */
static PLX_CHILD_CODE long length_of(struct pages *pages, const char *s, long limit)
{
	for (long n = 0; n < limit; n++) {
		if ((n == 0 || !((uintptr_t)(s + n) & 4095)) && !readable(pages, s + n))
			return -1;
		if (!s[n])
			return n;
	}
	return -1;
}

/* Whether a string begins so; the page of s is readable. */
static PLX_CHILD_CODE bool begins(struct pages *pages, const char *s, const char *with)
{
	for (; *with; s++, with++) {
		if (!((uintptr_t)s & 4095) && !readable(pages, s))
			return false;
		if (*s != *with)
			return false;
	}
	return true;
}

/* --- the environment ----------------------------------------------------------------------- */

#define PRELOAD "LD_PRELOAD="
static const char preload_is[] PLX_CHILD_CONST = PRELOAD;
static const char library_path_is[] PLX_CHILD_CONST = "LD_LIBRARY_PATH=";
static const char bind_now_is[] PLX_CHILD_CONST = "LD_BIND_NOW=";
static const char of_loader[] PLX_CHILD_CONST = "LD_";
static const char load_all[] PLX_CHILD_CONST = "POLLUX_LOAD=all";
static const char with_stats[] PLX_CHILD_CONST = "POLLUX_STATS=1";
static const char path_is[] PLX_CHILD_CONST = "PATH=";

static PLX_CHILD_CODE bool separates(char c)
{
	return c == ' ' || c == ':';
}

/* memcmp would be a page of libc's code, for the child of a fork. */
static PLX_CHILD_CODE bool same(const char *a, const char *b, size_t len)
{
	while (len && *a == *b) {
		a++;
		b++;
		len--;
	}
	return !len;
}

/*
 * Writes what is left of the list without our entry and what separates it from the next, or with
 * the starter in its place; false: it is not in it, or too long.
 */
static PLX_CHILD_CODE bool rewrite(struct plx_needless *n, const char *list, bool starter)
{
	size_t used = strlen(PRELOAD);
	bool found = false, ours = false;

	memcpy(n->preload, PRELOAD, used);
	while (*list) {
		size_t entry = 0, len;

		while (list[entry] && !separates(list[entry]))
			entry++;
		for (len = entry; separates(list[len]); len++)
			;
		ours = entry == own_length && same(list, own_name, entry);
		found |= ours;
		if (!ours || starter) {
			if (used + len >= sizeof(n->preload))
				return false;
			memcpy(n->preload + used, list, len);
			used += len;
		}
		if (ours && starter)
			memcpy(n->preload + used - len + entry - KIND_LEN, starter_is, KIND_LEN);
		list += len;
	}
	while (ours && !starter && separates(n->preload[used - 1]))
		used--;
	n->preload[used] = 0;
	n->others = used > strlen(PRELOAD);
	return found;
}

/* What no index is. */
#define NOWHERE ENV_FOREIGN_MAX

/*
 * The program's environment: false if there is nothing to be changed in it; `whole` if we are to be
 * loaded into whatever can load us. What changes how the loader works is known to be harmless, or
 * is not judged.
 */
static PLX_CHILD_CODE bool environment(struct plx_needless *n, char *const *envp)
{
	struct pages arrays = {{0}}, strings = {{0}};
	uint32_t count;

	n->at = NOWHERE;
	/* Otherwise an entry could lie in two pages. */
	if ((uintptr_t)envp % sizeof(*envp))
		return false;
	for (count = 0;; count++) {
		const char *s;

		if (count == ENV_FOREIGN_MAX || !readable(&arrays, &envp[count]))
			return false;
		s = envp[count];
		if (!s)
			break;
		if (!readable(&strings, s))
			return false;
		if (*s != 'L' && *s != 'P')
			continue;
		if (begins(&strings, s, preload_is)) {
			if (n->at != NOWHERE || length_of(&strings, s, LIST_MAX) < 0 ||
			    !rewrite(n, s + strlen(PRELOAD), false))
				return false;
			n->at = count;
		} else if (begins(&strings, s, library_path_is)) {
			n->library_path = true;
		} else if (begins(&strings, s, bind_now_is)) {
			continue;
		} else if (begins(&strings, s, of_loader) || begins(&strings, s, load_all) ||
			   begins(&strings, s, with_stats)) {
			n->whole = true;
		}
	}
	n->whole |= count >= ENV_MAX;
	n->envp = envp;
	n->count = count;
	return n->at != NOWHERE;
}

/* --- the file ------------------------------------------------------------------------------ */

struct libraries {
	uint32_t count, bytes;
	/* USE_..., of all files looked at. */
	uint32_t uses;
	char name[LIBRARIES_MAX][NAME_LEN];
};

struct image {
	int fd;
	bool program;
	/* What the first segment has of the file, and where. */
	uint64_t address, offset, size;
	uint64_t dynamic, dynamic_size;
	uint64_t interp, interp_size;
	/* It cannot load a library of ours. */
	bool foreign;
	bool run_path;
	uint32_t needs;
	uint32_t need[NEEDED_MAX];
	uint32_t strings_size;
	_Alignas(8) char buf[CHUNK];
	char strings[STRINGS_MAX];
};

/* A few pages, and the file that is looked at. */
struct desk {
	struct libraries libs;
	struct image im;
};

static long read_at(int fd, void *buf, size_t size, uint64_t offset)
{
	return plx_sys4(SYS_pread64, fd, buf, size, offset);
}

/* What the name says with which the string ends. */
static uint32_t use_of(const char *string, size_t length)
{
	const char *end = string + length;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = names[i].length;

		if (n <= length && end[-1] == names[i].name[n - 1] &&
		    memcmp(end - n, names[i].name, n) == 0)
			return names[i].use;
	}
	return 0;
}

/* Whether no string of the table ends with a name that settles it. */
static bool strings_clean(const struct image *im, struct libraries *libs)
{
	const char *p = im->strings, *end = p + im->strings_size;

	for (size_t n; p < end && !(libs->uses & USE_WHOLE); p += n + 1) {
		n = strlen(p);
		libs->uses |= use_of(p, n);
	}
	return !(libs->uses & USE_WHOLE);
}

static bool headers(struct image *im)
{
	const ElfW(Ehdr) *h = (const void *)im->buf;
	const ElfW(Phdr) *p = (const void *)im->buf;
	long n = read_at(im->fd, im->buf, sizeof(*h), 0);
	uint32_t count = h->e_phnum;
	bool few;

	if (n < EI_NIDENT + 4 || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	im->foreign = h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
		      h->e_machine != MACHINE;
	if (im->foreign || n < (long)sizeof(*h) || (h->e_type != ET_EXEC && h->e_type != ET_DYN) ||
	    h->e_phentsize != sizeof(*p))
		return false;
	/* The loader's name is among the first. */
	few = count <= CHUNK / sizeof(*p);
	if (!few)
		count = CHUNK / sizeof(*p);
	n = count * sizeof(*p);
	if (read_at(im->fd, im->buf, n, h->e_phoff) != n)
		return false;
	for (uint32_t i = 0; i < count; i++, p++) {
		if (p->p_type == PT_LOAD && !im->size) {
			im->address = p->p_vaddr;
			im->offset = p->p_offset;
			im->size = p->p_filesz;
		} else if (p->p_type == PT_DYNAMIC) {
			im->dynamic = p->p_offset;
			im->dynamic_size = p->p_filesz;
		} else if (p->p_type == PT_INTERP) {
			im->interp = p->p_offset;
			im->interp_size = p->p_filesz;
		}
	}
	return few && im->dynamic_size;
}

/* Two names of one file, or the same. */
static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return strcmp(a, b) == 0 || (plx_sys4(SYS_newfstatat, AT_FDCWD, a, &x, 0) == 0 &&
				     plx_sys4(SYS_newfstatat, AT_FDCWD, b, &y, 0) == 0 &&
				     x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/*
 * Whether a program has the common loader; it is foreign if another than ours loads it. (One
 * without a loader, a static one, loads nothing, and hands its environment on.)
 */
static bool interpreter(struct image *im)
{
	long size = (long)im->interp_size;
	bool common;

	im->foreign |= im->interp_size > PATH_LEN;
	if (!size || im->interp_size > PATH_LEN ||
	    read_at(im->fd, im->buf, size, im->interp) != size || im->buf[size - 1])
		return false;
	common = strcmp(im->buf, LOADER) == 0;
	im->foreign =
		(!common || strcmp(own_loader, LOADER) != 0) && !same_file(im->buf, own_loader);
	return common;
}

static bool dynamic(struct image *im, struct libraries *libs)
{
	const ElfW(Dyn) *d = (const void *)im->buf;
	uint64_t address = 0, size = 0;
	long n;

	if (im->dynamic_size > CHUNK)
		return false;
	n = read_at(im->fd, im->buf, im->dynamic_size, im->dynamic);
	for (; n >= (long)sizeof(*d) && d->d_tag != DT_NULL; d++, n -= sizeof(*d)) {
		switch (d->d_tag) {
		case DT_NEEDED:
			if (im->needs == NEEDED_MAX)
				return false;
			im->need[im->needs++] = d->d_un.d_val;
			break;
		case DT_STRTAB:
			address = d->d_un.d_ptr;
			break;
		case DT_STRSZ:
			size = d->d_un.d_val;
			break;
		case DT_RPATH:
		case DT_RUNPATH:
			im->run_path = true;
			break;
		case DT_AUDIT:
		case DT_DEPAUDIT:
		case DT_AUXILIARY:
		case DT_FILTER:
			return false;
		}
	}
	address -= im->address;
	if (!size || size > STRINGS_MAX - libs->bytes || address >= im->size ||
	    read_at(im->fd, im->strings, size, im->offset + address) != (long)size)
		return false;
	libs->bytes += size;
	im->strings_size = size;
	return !im->strings[size - 1];
}

/* Libraries that come with libc. */
static bool of_libc(const char *name)
{
	static const char all[][16] = {
		"libc.so.6",  "libm.so.6",    "libpthread.so.0", "libdl.so.2",
		"librt.so.1", "libutil.so.1", "libmvec.so.1",
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(name, all[i]) == 0)
			return true;
	return strcmp(name, strrchr(LOADER, '/') + 1) == 0;
}

static bool add_library(struct libraries *libs, const char *name)
{
	for (uint32_t i = 0; i < libs->count; i++)
		if (strcmp(libs->name[i], name) == 0)
			return true;
	if (libs->count == LIBRARIES_MAX || strlen(name) >= NAME_LEN)
		return false;
	strcpy(libs->name[libs->count++], name);
	return true;
}

static bool add_needed(struct image *im, struct libraries *libs)
{
	bool libc = false;

	for (uint32_t i = 0; i < im->needs; i++) {
		const char *name = im->strings + im->need[i];

		if (im->need[i] >= im->strings_size)
			return false;
		libc |= strcmp(name, "libc.so.6") == 0;
		if (of_libc(name))
			continue;
		/* A path, or one that may be found elsewhere. */
		if (im->run_path || strchr(name, '/') || !add_library(libs, name))
			return false;
	}
	return libc || !im->program;
}

static bool examine(int fd, bool program, struct desk *d)
{
	struct image *im = &d->im;
	bool fine;

	/* All but the buffers. */
	memset(im, 0, offsetof(struct image, buf));
	im->fd = fd;
	im->program = program;
	fine = headers(im);
	if (program)
		fine &= interpreter(im);
	return fine && dynamic(im, &d->libs) && strings_clean(im, &d->libs) &&
	       add_needed(im, &d->libs);
}

/* What is no regular file is not opened: that may take for ever, or do something. */
static __attribute__((noinline)) long open_regular(const char *path)
{
	struct stat st;
	long r = plx_sys4(SYS_newfstatat, AT_FDCWD, path, &st, 0);

	if (r)
		return r;
	return S_ISREG(st.st_mode) ? plx_sys4(SYS_openat, AT_FDCWD, path, OPEN_FLAGS, 0) : -EACCES;
}

static __attribute__((noinline)) long open_library(const char *name)
{
	/* In the loader's order. */
	static const char folders[][32] = {
		"/" LIBDIR, "/usr/" LIBDIR, "/lib64/", "/usr/lib64/", "/lib/", "/usr/lib/",
	};
	char path[32 + NAME_LEN];
	long fd = -ENOENT;

	if (name[0] == '/')
		return open_regular(name);
	if (strlen(name) >= NAME_LEN)
		return -ENAMETOOLONG;
	for (size_t i = 0; fd == -ENOENT && i < sizeof(folders) / sizeof(folders[0]); i++) {
		size_t len = strlen(folders[i]);

		memcpy(path, folders[i], len);
		memcpy(path + len, name, strlen(name) + 1);
		fd = open_regular(path);
	}
	return fd;
}

static bool library(const char *name, struct desk *d)
{
	long fd = open_library(name);
	bool clean = fd >= 0 && examine(fd, false, d);

	if (fd >= 0)
		plx_sys1(SYS_close, fd);
	return clean;
}

/* The libraries that are preloaded beside us. */
static bool preloaded(struct plx_needless *n, struct desk *d)
{
	char *list = n->preload + strlen(PRELOAD);
	bool clean = true;

	while (clean && *list) {
		char *end = list, was;

		while (*end && !separates(*end))
			end++;
		was = *end;
		*end = 0;
		/* A path that depends on the place, or is written with $LIB, is not judged. */
		clean = end == list || (!strchr(list, '$') &&
					(*list == '/' || !strchr(list, '/')) && library(list, d));
		*end = was;
		list = end + (was != 0);
	}
	return clean;
}

/* It is looked for once for each program: like the drop-in it stays. */
static __attribute__((noinline)) bool starter_there(void)
{
	char path[PLX_PRELOAD_MAX];
	struct stat st;

	if (own_length < KIND_LEN || own_length >= sizeof(path) ||
	    memcmp(own_name + own_length - KIND_LEN, dropin_is, KIND_LEN) != 0)
		return false;
	memcpy(path, own_name, own_length + 1);
	memcpy(path + own_length - KIND_LEN, starter_is, KIND_LEN);
	return plx_sys4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0;
}

/* Whether a program may be judged: everybody may execute it, with his own privileges. */
static PLX_CHILD_CODE bool is_common(const struct stat *st)
{
	return S_ISREG(st->st_mode) && (st->st_mode & 06111) == 0111;
}

/* How a script leads to a program. */
struct way {
	/* In a way that is judged: one line, an absolute path, a program for everybody. */
	bool common;
	/* From the folder of the process. */
	bool relative;
};

/* The program that the kernel executes for a script; negative: it is none. */
static __attribute__((noinline)) long open_interpreter(int fd, struct way *w)
{
	char line[PATH_LEN + 1];
	struct stat st;
	long n = read_at(fd, line, PATH_LEN, 0), start = 2, end;

	if (n < 2 || line[0] != '#' || line[1] != '!')
		return -1;
	while (start < n && (line[start] == ' ' || line[start] == '\t'))
		start++;
	for (end = start; end < n && line[end] && !strchr(" \t\n", line[end]); end++)
		;
	w->common &= end < n && line[start] == '/';
	w->relative |= line[start] != '/';
	if (end == start || end == PATH_LEN)
		return -1;
	line[end] = 0;
	if (plx_sys4(SYS_newfstatat, AT_FDCWD, line + start, &st, 0) || !S_ISREG(st.st_mode))
		return -1;
	w->common &= is_common(&st);
	return plx_sys4(SYS_openat, AT_FDCWD, line + start, OPEN_FLAGS, 0);
}

static uint32_t judge_program(struct plx_needless *n, int fd, struct desk *d)
{
	const struct libraries *libs = &d->libs;
	bool judged = examine(fd, true, d);

	if (d->im.foreign)
		return JUDGED | FOREIGN;
	if (!judged || !preloaded(n, d))
		return JUDGED | USE_WHOLE;
	for (uint32_t i = 0; i < libs->count; i++)
		if (!library(libs->name[i], d))
			return JUDGED | USE_WHOLE;
	if ((libs->uses & USE_STARTS) && !starter_there())
		return JUDGED | USE_WHOLE;
	return JUDGED | libs->uses | (libs->count || n->others ? AS_FOUND : 0);
}

/* What the file fd has use for. */
static uint32_t judge(struct plx_needless *n, int fd)
{
	long d = plx_sys6(SYS_mmap, 0, sizeof(struct desk), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct way w = {.common = true};
	long program = fd, next;
	uint32_t v, scripts = 0;

	if (d < 0 && d > -4096)
		return USE_WHOLE;
	while (scripts <= SCRIPTS_MAX && (next = open_interpreter((int)program, &w)) >= 0) {
		if (scripts++)
			plx_sys1(SYS_close, program);
		program = next;
	}
	v = judge_program(n, (int)program, (struct desk *)d);
	if (scripts)
		plx_sys1(SYS_close, program);
	plx_sys2(SYS_munmap, d, sizeof(struct desk));
	if (scripts > 1 || !w.common)
		v |= USE_WHOLE;
	/* It is another one from another folder. */
	return w.relative ? v & ~JUDGED : v;
}

/* --- verdicts that are remembered ---------------------------------------------------------- */

/*
 * One word each: the hash of what tells a file and its state, without its last bits, and the
 * verdict there. Words are read and written whole; which of two writers wins does not matter. A
 * program that has changed has another hash. (One whose library has changed has not, nor a script
 * whose interpreter has: see above.)
 *
 * What the child of a fork finds out would be lost with it, and a loop of forks would judge the
 * same program again and again. So the first fork makes a table that all share.
 */
#define CACHE 256
static uint64_t own_cache[CACHE];
static PLX_START_PAGE uint64_t *cache = own_cache;

void plx_needless_before_fork(void)
{
	uint64_t *own = own_cache;
	long at;

	if (plx_likely(plx_load(&cache) != own) || plx_load(&never))
		return;
	at = plx_sys6(SYS_mmap, 0, sizeof(own_cache), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at > 0 && !plx_cas(&cache, &own, (uint64_t *)at))
		plx_sys2(SYS_munmap, at, sizeof(own_cache));
}

static PLX_CHILD_CODE uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static PLX_CHILD_CODE uint64_t key_of(const struct plx_needless *n, const struct stat *st)
{
	uint64_t h = mix(mix(1, st->st_dev), st->st_ino);

	h = mix(mix(h, st->st_size), st->st_mode);
	h = mix(mix(h, st->st_mtim.tv_sec), st->st_mtim.tv_nsec);
	h = mix(mix(h, st->st_ctim.tv_sec), st->st_ctim.tv_nsec);
	for (const char *p = n->preload; n->others && *p; p++)
		h = mix(h, (unsigned char)*p);
	return h & ~(uint64_t)FLAGS;
}

/* --- what is executed ---------------------------------------------------------------------- */

bool plx_one_thread(void)
{
#if PLX_TSAN
	/* Its run-time has a thread. This library can only be loaded where that is, too. */
	return true;
#else
	struct stat st;

	return plx_sys4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &st, 0) == 0 &&
	       st.st_nlink == 3;
#endif
}

/* Of the standard signals those without a handler: that it comes ends the process, or is nothing.
 */
static uint64_t without_handler(void)
{
	uint64_t set = 0;

	for (int sig = 1; sig < 32; sig++) {
		/* As the kernel has it: the handler first, and room for the rest. */
		uintptr_t act[8];

		if (plx_sys4(SYS_rt_sigaction, sig, NULL, act, sizeof(set)) == 0 &&
		    (act[0] == (uintptr_t)SIG_DFL || act[0] == (uintptr_t)SIG_IGN))
			set |= 1ull << (sig - 1);
	}
	return set;
}

/*
 * What is looked at gets numbers of the program's own for a moment. Nobody may find it there, or
 * the next number taken: no handler of a signal runs meanwhile, and where there are other threads
 * nothing is looked at, unless they end with the call. (The child of a vfork has numbers of its
 * own, and is one thread.)
 */
static __attribute__((noinline)) uint32_t look(struct plx_needless *n, int dir, const char *path)
{
	/* A file system may keep us waiting: what ends the process does so there, too. */
	const uint64_t all = ~without_handler();
	uint32_t v = USE_WHOLE;
	long fd = dir;
	uint64_t mask;

	if (plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof(all)))
		return v;
	if (!n->beside || plx_one_thread()) {
		if (*path)
			fd = plx_sys4(SYS_openat, dir, path, OPEN_FLAGS, 0);
		if (fd >= 0)
			v = PLX_INJECTED(wrong_verdict) ? JUDGED : judge(n, (int)fd);
		else if (fd == -EACCES)
			/* Nor will it be read next time. */
			v |= JUDGED;
		if (*path && fd >= 0)
			plx_sys1(SYS_close, fd);
	}
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
	return v;
}

static PLX_CHILD_CODE uint32_t verdict_of(struct plx_needless *n, int dir, const char *path,
					  const struct stat *st)
{
	uint64_t key = key_of(n, st), *word = &plx_load(&cache)[(key >> 32) % CACHE],
		 seen = plx_load(word);
	uint32_t v;

	if ((seen & ~(uint64_t)FLAGS) == key && seen & JUDGED)
		return seen & FLAGS;
	v = look(n, dir, path);
	if (*path && v & JUDGED)
		plx_store(word, key | v);
	return v;
}

/* 0, or the kernel's error. */
static PLX_CHILD_CODE long file_at(int dir, const char *path, int flags, struct stat *st)
{
	return plx_sys4(SYS_newfstatat, dir, path, st, flags);
}

static PLX_CHILD_CODE enum plx_load load_of(struct plx_needless *n, int dir, const char *path,
					    const struct stat *st)
{
	uint32_t v;

	if (!S_ISREG(st->st_mode))
		return PLX_LOAD_WHOLE;
	v = verdict_of(n, dir, path, st);
	if (v & FOREIGN)
		return PLX_LOAD_NOTHING;
	if (n->whole || !is_common(st) || (v & USE_WHOLE) || ((v & AS_FOUND) && n->library_path))
		return PLX_LOAD_WHOLE;
	return v & USE_STARTS ? PLX_LOAD_STARTER : PLX_LOAD_NOTHING;
}

/* As libc asks for it: programs have functions getenv of their own, shells do. */
static PLX_CHILD_CODE const char *path_variable(void)
{
	for (char **e = environ; e && *e; e++)
		if (same(*e, path_is, sizeof(path_is) - 1))
			return *e + sizeof(path_is) - 1;
	return NULL;
}

/*
 * As execvp searches: the first file that may be executed.
 * What execvp goes past for other reasons ends the search here.
 */
static PLX_CHILD_CODE enum plx_load searched(struct plx_needless *n, const char *file,
					     bool from_here)
{
	const char *dirs = path_variable();
	struct pages pages = {{0}};
	long len = length_of(&pages, file, PATH_LEN);
	char path[PATH_LEN];
	struct stat st;

	if (len <= 0)
		return PLX_LOAD_WHOLE;
	if (strchr(file, '/')) {
		n->whole |= !from_here && *file != '/';
		return file_at(AT_FDCWD, file, 0, &st) == 0 ? load_of(n, AT_FDCWD, file, &st)
							    : PLX_LOAD_WHOLE;
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;; dirs++) {
		size_t dir = 0;
		long r;

		while (dirs[dir] && dirs[dir] != ':')
			dir++;
		if (dir + len + 2 > sizeof(path))
			return PLX_LOAD_WHOLE;
		n->whole |= !from_here && *dirs != '/';
		memcpy(path, dirs, dir);
		path[dir] = '/';
		memcpy(path + dir + (dir > 0), file, len + 1);
		r = file_at(AT_FDCWD, path, 0, &st);
		/* A folder of that name, and what is not to be executed, is gone past. */
		if (r == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111))
			return load_of(n, AT_FDCWD, path, &st);
		dirs += dir;
		if ((r && r != -ENOENT && r != -ENOTDIR && r != -EACCES) || !*dirs)
			return PLX_LOAD_WHOLE;
	}
}

static PLX_CHILD_CODE enum plx_load judged(struct plx_needless *n, const struct plx_execution *x,
					   char *const *envp)
{
	struct stat st;

	if (plx_load(&never) || !own_name || !envp || !x->path || !environment(n, envp))
		return PLX_LOAD_WHOLE;
	if (x->search)
		return searched(n, x->path, !x->elsewhere);
	if ((x->flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) ||
	    file_at(x->dir, x->path, x->flags, &st))
		return PLX_LOAD_WHOLE;
	/* Another file perhaps than the one that is looked at, which may be one that cannot load
	 * us. */
	n->whole |= *x->path != '/' && x->elsewhere;
	return load_of(n, x->dir, x->path, &st);
}

PLX_CHILD_CODE uint32_t plx_needless(struct plx_needless *n, const struct plx_execution *x,
				     char *const *envp)
{
	n->library_path = n->whole = false;
	n->beside = x->beside;
	n->load = judged(n, x, envp);
	if (n->load == PLX_LOAD_STARTER && !rewrite(n, envp[n->at] + strlen(PRELOAD), true))
		n->load = PLX_LOAD_WHOLE;
	n->envp = envp;
	return n->load != PLX_LOAD_WHOLE ? n->count + 1 : 1;
}

PLX_CHILD_CODE char *const *plx_needless_env(struct plx_needless *n, char **room)
{
	uint32_t used = 0;

	if (n->load == PLX_LOAD_WHOLE)
		return n->envp;
	for (uint32_t i = 0; i < n->count; i++) {
		if (i != n->at)
			room[used++] = n->envp[i];
		else if (n->others)
			room[used++] = n->preload;
	}
	room[used] = NULL;
	return room;
}
