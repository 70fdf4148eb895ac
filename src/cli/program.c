/* SPDX-License-Identifier: MIT */
/*
 * Whether the drop-in can get into a program. The dynamic loader ignores
 * LD_PRELOAD silently, or with a warning that scrolls by, where it cannot honour
 * it; the user of `pollux run` is better told before.
 */
#include "cli.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* As many interpreters as the kernel follows. */
#define MAX_INTERPRETERS 5
#define HEAD_SIZE 512

struct elf_facts {
	unsigned char bits;
	unsigned char data;
	uint16_t machine;
	bool has_interp;
	char interp[PATH_MAX];
};

static void verdict(struct program *p, enum program_state state, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void verdict(struct program *p, enum program_state state, const char *fmt, ...)
{
	va_list ap;

	p->state = state;
	va_start(ap, fmt);
	vsnprintf(p->why, sizeof(p->why), fmt, ap);
	va_end(ap);
}

/* The name looked up as execvp does. */
static bool find(const char *name, struct program *p)
{
	const char *dirs = getenv("PATH");
	bool denied = false;

	if (!*name) {
		verdict(p, PROGRAM_NOT_FOUND, "the name of the program is empty");
		return false;
	}
	if (strchr(name, '/')) {
		struct stat st;

		if (strlen(name) >= PATH_MAX) {
			verdict(p, PROGRAM_NOT_FOUND, "%s", strerror(ENAMETOOLONG));
			return false;
		}
		strcpy(p->path, name);
		if (stat(name, &st)) {
			verdict(p,
				errno == ENOENT || errno == ENOTDIR ? PROGRAM_NOT_FOUND
								    : PROGRAM_NOT_EXECUTABLE,
				"%s", strerror(errno));
			return false;
		}
		if (!S_ISREG(st.st_mode)) {
			verdict(p, PROGRAM_NOT_EXECUTABLE,
				S_ISDIR(st.st_mode) ? "it is a folder"
						    : "it is not a regular file");
			return false;
		}
		if (access(name, X_OK)) {
			verdict(p, PROGRAM_NOT_EXECUTABLE, "%s", strerror(errno));
			return false;
		}
		return true;
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;;) {
		size_t len = strcspn(dirs, ":");
		struct stat st;

		if (len + strlen(name) + 2 <= PATH_MAX) {
			snprintf(p->path, PATH_MAX, "%.*s%s%s", (int)len, dirs, len ? "/" : "",
				 name);
			if (!stat(p->path, &st) && S_ISREG(st.st_mode)) {
				if (!access(p->path, X_OK))
					return true;
				denied = true;
			}
		}
		if (!dirs[len])
			break;
		dirs += len + 1;
	}
	if (denied)
		verdict(p, PROGRAM_NOT_EXECUTABLE,
			"the file of that name in PATH is not executable");
	else
		verdict(p, PROGRAM_NOT_FOUND, "not found in PATH");
	return false;
}

/* The file in the middle of a sentence that begins with the program's name. */
static const char *subject(const struct program *p, const char *path)
{
	return path == p->path ? "it" : path;
}

static bool read_interp(int fd, off_t offset, uint64_t size, struct elf_facts *facts)
{
	if (size == 0 || size > sizeof(facts->interp))
		return false;
	if (pread(fd, facts->interp, size, offset) != (ssize_t)size)
		return false;
	facts->interp[size - 1] = '\0';
	facts->has_interp = true;
	return true;
}

/* False if the file is damaged; headers of another byte order are not looked into. */
static bool read_elf(int fd, const unsigned char *head, size_t len, struct elf_facts *facts)
{
	const uint16_t probe = 1;
	unsigned char native = *(const unsigned char *)&probe ? ELFDATA2LSB : ELFDATA2MSB;
	uint64_t phoff;
	unsigned int phnum, phentsize;

	memset(facts, 0, sizeof(*facts));
	if (len < sizeof(Elf32_Ehdr))
		return false;
	facts->bits = head[EI_CLASS];
	facts->data = head[EI_DATA];
	if (facts->data != native)
		return true;
	memcpy(&facts->machine, head + offsetof(Elf32_Ehdr, e_machine), sizeof(facts->machine));
	if (facts->bits == ELFCLASS64) {
		Elf64_Ehdr eh;

		if (len < sizeof(eh))
			return false;
		memcpy(&eh, head, sizeof(eh));
		phoff = eh.e_phoff;
		phnum = eh.e_phnum;
		phentsize = eh.e_phentsize;
		if (phentsize < sizeof(Elf64_Phdr))
			return false;
	} else if (facts->bits == ELFCLASS32) {
		Elf32_Ehdr eh;

		memcpy(&eh, head, sizeof(eh));
		phoff = eh.e_phoff;
		phnum = eh.e_phnum;
		phentsize = eh.e_phentsize;
		if (phentsize < sizeof(Elf32_Phdr))
			return false;
	} else {
		return false;
	}
	for (unsigned int i = 0; i < phnum; i++) {
		off_t at = (off_t)(phoff + (uint64_t)i * phentsize);

		if (facts->bits == ELFCLASS64) {
			Elf64_Phdr ph;

			if (pread(fd, &ph, sizeof(ph), at) != (ssize_t)sizeof(ph))
				return false;
			if (ph.p_type == PT_INTERP)
				return read_interp(fd, (off_t)ph.p_offset, ph.p_filesz, facts);
		} else {
			Elf32_Phdr ph;

			if (pread(fd, &ph, sizeof(ph), at) != (ssize_t)sizeof(ph))
				return false;
			if (ph.p_type == PT_INTERP)
				return read_interp(fd, (off_t)ph.p_offset, ph.p_filesz, facts);
		}
	}
	return true;
}

static ssize_t read_head(int fd, unsigned char head[HEAD_SIZE])
{
	size_t have = 0;

	while (have < HEAD_SIZE) {
		ssize_t n = pread(fd, head + have, HEAD_SIZE - have, (off_t)have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

/* This very executable is the measure of what the drop-in beside it fits. */
static bool own_facts(struct elf_facts *facts)
{
	unsigned char head[HEAD_SIZE];
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ssize_t len;
	bool ok;

	if (fd < 0)
		return false;
	len = read_head(fd, head);
	ok = len > 0 && read_elf(fd, head, (size_t)len, facts);
	close(fd);
	return ok;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const char *machine_name(uint16_t machine)
{
	switch (machine) {
	case EM_386:
		return "32-bit x86";
	case EM_X86_64:
		return "x86-64";
	case EM_ARM:
		return "32-bit ARM";
	case EM_AARCH64:
		return "aarch64";
	case EM_RISCV:
		return "RISC-V";
	case EM_PPC64:
		return "PowerPC 64";
	case EM_S390:
		return "s390";
	default:
		return "another machine";
	}
}

/* Two paths of loaders: of one file, or, if one of them is not there, of one name. */
static bool same_loader(const char *a, const char *b)
{
	struct stat x, y;

	if (!strcmp(a, b))
		return true;
	if (stat(a, &x) || stat(b, &y))
		return !strcmp(base_name(a), base_name(b));
	return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void examine_privilege(struct program *p, const char *path)
{
	struct stat st;

	if (!stat(path, &st) &&
	    (st.st_mode & S_ISUID || (st.st_mode & S_ISGID && st.st_mode & S_IXGRP)))
		verdict(p, PROGRAM_UNREACHABLE,
			"%s is %s: the loader ignores preloaded libraries in privileged programs",
			subject(p, path), st.st_mode & S_ISUID ? "set-uid" : "set-gid");
	else if (getxattr(path, "security.capability", NULL, 0) > 0)
		verdict(p, PROGRAM_UNREACHABLE,
			"%s has file capabilities: the loader ignores preloaded libraries in "
			"privileged programs",
			subject(p, path));
	else
		p->state = PROGRAM_OK;
}

static void examine_elf(struct program *p, int fd, const char *path, const unsigned char *head,
			size_t len)
{
	struct elf_facts facts, own;

	if (!read_elf(fd, head, len, &facts)) {
		verdict(p, PROGRAM_NOT_EXECUTABLE, "%s is a damaged ELF file", subject(p, path));
		return;
	}
	if (own_facts(&own)) {
		if (facts.data != own.data || facts.machine != own.machine) {
			verdict(p, PROGRAM_UNREACHABLE,
				"%s is built for %s and this Pollux for %s; the drop-in cannot be "
				"loaded into it",
				subject(p, path),
				facts.data != own.data ? "another byte order"
						       : machine_name(facts.machine),
				machine_name(own.machine));
			return;
		}
		if (facts.bits != own.bits) {
			verdict(p, PROGRAM_UNREACHABLE,
				"%s is a %d-bit program and this Pollux is built for %d bits; the "
				"drop-in cannot be loaded into it",
				subject(p, path), facts.bits == ELFCLASS64 ? 64 : 32,
				own.bits == ELFCLASS64 ? 64 : 32);
			return;
		}
		if (facts.has_interp && own.has_interp && !same_loader(facts.interp, own.interp)) {
			verdict(p, PROGRAM_UNREACHABLE,
				"%s belongs to another C library (its loader is %s, that of this "
				"Pollux is %s)",
				subject(p, path), facts.interp, own.interp);
			return;
		}
	}
	if (!facts.has_interp) {
		verdict(p, PROGRAM_UNREACHABLE,
			"%s is statically linked: it never loads a library, so the drop-in cannot "
			"get into it",
			subject(p, path));
		return;
	}
	examine_privilege(p, path);
}

static void examine_file(struct program *p, const char *path, int depth);

/*
 * The program that an env(1) line of a script starts, found in `args`; NULL if there
 * is none. An env that empties the environment takes the drop-in away with it.
 */
static const char *env_target(char *args, bool *clears)
{
	char *save = NULL;

	*clears = false;
	for (char *word = strtok_r(args, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		if (!strcmp(word, "-S") || !strcmp(word, "--split-string") || !strcmp(word, "-v") ||
		    !strcmp(word, "--"))
			continue;
		if (!strcmp(word, "-i") || !strcmp(word, "-") ||
		    !strcmp(word, "--ignore-environment")) {
			*clears = true;
			continue;
		}
		if (!strcmp(word, "-u") || !strcmp(word, "-C")) {
			strtok_r(NULL, " \t", &save);
			continue;
		}
		if (word[0] == '-' && word[1] != '-') {
			/* Short options in one word, as in -iS. */
			char *split = strchr(word, 'S');

			*clears |= strcspn(word, "iuCS") == strcspn(word, "i") && strchr(word, 'i');
			if (split && split[1])
				return split + 1;
			continue;
		}
		if (*word == '-' || strchr(word, '='))
			continue;
		return word;
	}
	return NULL;
}

static void examine_script(struct program *p, const char *path, const unsigned char *head,
			   size_t len, int depth)
{
	char line[HEAD_SIZE + 1];
	char *interp, *args;
	size_t n;

	memcpy(line, head + 2, len - 2);
	line[len - 2] = '\0';
	line[strcspn(line, "\n")] = '\0';
	n = strlen(line);
	while (n && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r'))
		line[--n] = '\0';
	interp = line + strspn(line, " \t");
	args = interp + strcspn(interp, " \t");
	if (*args)
		*args++ = '\0';
	if (!*interp) {
		verdict(p, PROGRAM_NOT_EXECUTABLE, "%s is a script that names no interpreter",
			subject(p, path));
		return;
	}
	if (depth >= MAX_INTERPRETERS) {
		verdict(p, PROGRAM_NOT_EXECUTABLE, "%s", strerror(ELOOP));
		return;
	}
	if (access(interp, X_OK)) {
		verdict(p, errno == ENOENT ? PROGRAM_NOT_FOUND : PROGRAM_NOT_EXECUTABLE,
			"its interpreter %s: %s", interp, strerror(errno));
		return;
	}
	examine_file(p, interp, depth + 1);
	if (p->state == PROGRAM_OK && !strcmp(base_name(interp), "env")) {
		struct program target = {.state = PROGRAM_OK};
		bool clears;
		const char *name = env_target(args, &clears);

		if (clears) {
			verdict(p, PROGRAM_UNREACHABLE,
				"its first line empties the environment (env -i), and the drop-in "
				"goes with it");
			return;
		}
		if (!name)
			return;
		if (!find(name, &target)) {
			verdict(p, target.state, "its interpreter %s: %s", name, target.why);
			return;
		}
		examine_file(&target, target.path, depth + 1);
		p->state = target.state;
		strcpy(p->why, target.why);
	}
}

/*
 * As the kernel opens what it executes: nothing but a regular file. To open another may take for
 * ever, or do something.
 */
static int open_regular(const char *path)
{
	struct stat st;
	int fd;

	if (stat(path, &st))
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = EACCES;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return fd;
}

static bool is_regular(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

static void examine_file(struct program *p, const char *path, int depth)
{
	unsigned char head[HEAD_SIZE];
	int fd = open_regular(path);
	ssize_t len;

	p->state = PROGRAM_OK;
	if (fd < 0) {
		/* Executable but not readable is allowed; its mode is then all there is to see. */
		if (errno == EACCES && is_regular(path))
			examine_privilege(p, path);
		else
			verdict(p, PROGRAM_NOT_EXECUTABLE, "%s: %s", path, strerror(errno));
		return;
	}
	len = read_head(fd, head);
	if (len < 0)
		verdict(p, PROGRAM_NOT_EXECUTABLE, "%s: %s", path, strerror(errno));
	else if (len >= SELFMAG && !memcmp(head, ELFMAG, SELFMAG))
		examine_elf(p, fd, path, head, (size_t)len);
	else if (len >= 2 && head[0] == '#' && head[1] == '!')
		examine_script(p, path, head, (size_t)len, depth);
	else if (depth == 0)
		/* execvp hands a file without a known format to the shell. */
		examine_file(p, "/bin/sh", depth + 1);
	else
		verdict(p, PROGRAM_NOT_EXECUTABLE, "its interpreter %s: %s", path,
			strerror(ENOEXEC));
	close(fd);
}

void program_examine(const char *name, struct program *p)
{
	memset(p, 0, sizeof(*p));
	if (find(name, p))
		examine_file(p, p->path, 0);
}
