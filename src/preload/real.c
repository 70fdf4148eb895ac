/* SPDX-License-Identifier: MIT */
/*
 * Finding the real functions: each when it is first called, all of them before the first
 * object is adopted.
 *
 * Not by dlsym: a hundred calls of it are a twentieth of the start of a small program, it takes
 * the loader's lock, which the child of a fork may find held by a thread that is not there, and
 * when it fails it allocates, while the caller may be an allocator on its way up (jemalloc reads
 * /proc when it starts). What RTLD_NEXT means at the start of the program is a list of objects
 * that never changes: those after us up to the last that were loaded then. None of them is
 * unloaded, and their tables of symbols are only read. So a look-up is a walk over memory that
 * a signal handler, or the child of a vfork, can do as well.
 *
 * What is unusual is left to dlsym: calls that come before our constructor, objects without a
 * GNU hash table, functions that are chosen when they are looked up (IFUNC).
 */
#include "preload/preload.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/lock.h"

/*
 * The objects that are searched, both ends included; NULL before our constructor. (The vdso, which
 * nobody searches, stands before us, and has other names.)
 */
static PLX_START_PAGE struct link_map *first_next;
static PLX_START_PAGE struct link_map *last_next;

static long absent(void)
{
	errno = ENOSYS;
	return -1;
}

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

PLX_START_CODE const char *plx_real_learn(void)
{
	struct link_map *m = _r_debug.r_map;
	const char *own;

	while (m && m->l_ld != _DYNAMIC)
		m = m->l_next;
	if (!m || !m->l_next)
		return NULL;
	own = m->l_name;
	first_next = m->l_next;
	while (m->l_next)
		m = m->l_next;
	plx_store_rel(&last_next, m);
	return own;
}

#ifndef PLX_STARTER
struct link_map *plx_real_objects(struct link_map **last)
{
	*last = plx_load_acq(&last_next);
	return *last ? _r_debug.r_map : NULL;
}
#endif

typedef ElfW(Sym) symbol;

struct tables {
	const uint32_t *hash;
	const symbol *symbols;
	const char *strings;
	const ElfW(Half) * versions;
};

/* The loader turns these offsets into addresses, not in all objects. */
static PLX_START_CODE const void *address(const struct link_map *m, ElfW(Addr) at)
{
	return (const void *)(at < m->l_addr ? at + m->l_addr : at);
}

static PLX_START_CODE bool tables_of(const struct link_map *m, struct tables *t)
{
	*t = (struct tables){0};
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
		const void *p = address(m, d->d_un.d_ptr);

		if (d->d_tag == DT_GNU_HASH)
			t->hash = p;
		else if (d->d_tag == DT_SYMTAB)
			t->symbols = p;
		else if (d->d_tag == DT_STRTAB)
			t->strings = p;
		else if (d->d_tag == DT_VERSYM)
			t->versions = p;
	}
	return t->hash && t->symbols && t->strings;
}

static PLX_START_CODE uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

/* A definition that counts: the default version of the name, if it has versions. */
static PLX_START_CODE bool defines(const struct tables *t, uint32_t i, const char *name)
{
	const symbol *s = &t->symbols[i];

	return s->st_shndx != SHN_UNDEF && s->st_value && ELF64_ST_BIND(s->st_info) != STB_LOCAL &&
	       !(t->versions && ((t->versions[i] & 0x8000) || !t->versions[i])) &&
	       strcmp(t->strings + s->st_name, name) == 0;
}

/*
 * The table: counts of buckets, the first symbol in it, words of the filter, its shift; the filter;
 * the buckets; for each symbol its hash, whose last bit says that the chain ends.
 */
static PLX_START_CODE const symbol *search(const struct tables *t, const char *name, uint32_t h)
{
	const uint32_t bits = sizeof(ElfW(Addr)) * 8;
	uint32_t buckets = t->hash[0], first = t->hash[1], words = t->hash[2];
	const ElfW(Addr) *filter = (const void *)(t->hash + 4);
	const uint32_t *bucket = (const void *)(filter + words);
	ElfW(Addr) word = filter[(h / bits) & (words - 1)];
	uint32_t i;

	if (!buckets || !((word >> (h % bits)) & (word >> ((h >> t->hash[3]) % bits)) & 1))
		return NULL;
	i = bucket[h % buckets];
	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t chained = bucket[buckets + i - first];

		if ((chained | 1) == (h | 1) && defines(t, i, name))
			return &t->symbols[i];
		if (chained & 1)
			return NULL;
	}
}

/* NULL: dlsym has to say. */
static PLX_START_CODE void *walk(const char *name)
{
	struct link_map *last = plx_load_acq(&last_next);
	uint32_t h = gnu_hash(name);

	if (!last)
		return NULL;
	for (struct link_map *m = first_next;; m = m->l_next) {
		const symbol *s;
		struct tables t;

		if (!tables_of(m, &t))
			return NULL;
		s = search(&t, name, h);
		if (s && ELF64_ST_TYPE(s->st_info) == STT_GNU_IFUNC)
			return NULL;
		if (s)
			return (void *)(m->l_addr + s->st_value);
		if (m == last)
			return (void *)absent;
	}
}

/* RTLD_NEXT yields the default version of a name that has several. */
static PLX_START_CODE __attribute__((noinline)) void *look_up(const char *name)
{
	int saved = errno;
	void *p = walk(name);

	if (!p)
		p = dlsym(RTLD_NEXT, name);
	errno = saved;
	return p ? p : (void *)absent;
}

/* In what stands behind us, loaded later, too. */
struct anywhere {
	const char *name;
	uint32_t hash;
	bool before;
	void *found;
};

static int look_in(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct link_map m = {.l_addr = info->dlpi_addr};
	struct anywhere *a = arg;
	const symbol *s;
	struct tables t;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			m.l_ld = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (m.l_ld == _DYNAMIC)
		a->before = false;
	if (m.l_ld == _DYNAMIC || a->before || !tables_of(&m, &t))
		return 0;
	s = search(&t, a->name, a->hash);
	if (s)
		a->found = (void *)(m.l_addr + s->st_value);
	return s != NULL;
}

/*
 * For a call that is being made. It may come from a library that was loaded later, with the one
 * that has the function: before glibc 2.34 some are not in libc.
 */
static PLX_START_CODE __attribute__((noinline)) void *look_up_late(const char *name)
{
	struct anywhere a = {.name = name, .hash = gnu_hash(name), .before = true};
	int saved = errno;
	void *p = look_up(name);

	if (p != (void *)absent)
		return p;
	/* What was loaded later is not changed while the loader lists it. */
	dl_iterate_phdr(look_in, &a);
	errno = saved;
	return a.found ? a.found : p;
}

#ifndef PLX_STARTER
void *plx_real_anywhere(const char *name)
{
	void *p = look_up_late(name);

	return p == (void *)absent ? NULL : p;
}
#endif

/* Of all functions, in their order, one after the other. */
#define NAME(name) #name "\0"
static const char names[] PLX_START_CONST = PLX_REALS(NAME);
#undef NAME

/* The stubs, which are code alone. */
#define STUB(name) void plx_first_##name(void);
PLX_REALS(STUB)
#undef STUB

#define START(name) .name = (void *)plx_first_##name,
PLX_START_PAGE struct plx_real plx_real = {PLX_REALS(START)};
#undef START

/*
 * Threads call by these words while another finds what stands there for good: either is right, and
 * ThreadSanitizer is not shown the change.
 */
#define UNSEEN __attribute__((no_sanitize("thread")))

#ifndef PLX_STARTER
UNSEEN void plx_real_init(void)
{
	void **place = (void **)&plx_real, *p;

	for (const char *name = names; *name; name += strlen(name) + 1, place++)
		if ((p = look_up(name)) != (void *)absent)
			plx_store(place, p);
}
#endif

__attribute__((used)) void *plx_real_find(const void *arguments, size_t offset);
/* For a stub. */
UNSEEN PLX_START_CODE void *plx_real_find(const void *arguments, size_t offset)
{
	void **place = (void **)((char *)&plx_real + offset), *p;
	const char *name = names;

	(void)arguments;
	for (size_t i = offset / sizeof(*place); i; i--)
		name += strlen(name) + 1;
	p = look_up_late(name);
	if (p != (void *)absent)
		plx_store(place, p);
	return p;
}

/*
 * The way of all that is entered without a frame. A register has the function that is to be called,
 * for a stub another one the place in the table. The arguments are put by, as struct
 * plx_args has them, and are the program's again when it goes on. On x86-64 a seventh one is in
 * memory, in a frame that is the caller's. Most callers pass fewer, and have a variable of their
 * own there. It is read, as libc does, and never written: a compiler may store it back before the
 * last call, and undo what another thread has written meanwhile.
 */
#if defined(__x86_64__)
__asm__(".pushsection .text.startup.plx, \"ax\"\n"
	".globl plx_jump\n"
	".hidden plx_jump\n"
	".type plx_jump, @function\n"
	"plx_jump:\n"
	".cfi_startproc\n"
	"	pushq %rdi\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %rdx\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %rcx\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %r8\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %r9\n"
	".cfi_adjust_cfa_offset 8\n"
	"	pushq %rax\n"
	".cfi_adjust_cfa_offset 8\n"
	"	movq %rsp, %rdi\n"
	"	movq %r10, %rsi\n"
	"	call *%r11\n"
	"	movq %rax, %r11\n"
	"	movq %rdx, %r10\n"
	"	popq %rax\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %r9\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %r8\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rcx\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rdx\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	".cfi_adjust_cfa_offset -8\n"
	"	testq %r11, %r11\n"
	"	jz 1f\n"
	"	jmp *%r11\n"
	"1:	movq %r10, %rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size plx_jump, .-plx_jump\n"
	".popsection\n");
#define STUB_CODE "	endbr64\n	movl $%c0, %%r10d\n	jmp plx_first\n"
#elif defined(__aarch64__)
__asm__(".pushsection .text.startup.plx, \"ax\"\n"
	".globl plx_jump\n"
	".hidden plx_jump\n"
	".type plx_jump, %function\n"
	"plx_jump:\n"
	".cfi_startproc\n"
	"	stp x29, x30, [sp, #-80]!\n"
	".cfi_adjust_cfa_offset 80\n"
	".cfi_rel_offset x29, 0\n"
	".cfi_rel_offset x30, 8\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	stp x2, x3, [sp, #32]\n"
	"	stp x4, x5, [sp, #48]\n"
	"	stp x6, x7, [sp, #64]\n"
	"	mov x0, sp\n"
	"	mov x1, x16\n"
	"	blr x17\n"
	"	mov x16, x0\n"
	"	mov x17, x1\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x2, x3, [sp, #32]\n"
	"	ldp x4, x5, [sp, #48]\n"
	"	ldp x6, x7, [sp, #64]\n"
	"	ldp x29, x30, [sp], #80\n"
	".cfi_restore x30\n"
	".cfi_restore x29\n"
	".cfi_adjust_cfa_offset -80\n"
	"	cbz x16, 1f\n"
	"	br x16\n"
	"1:	mov x0, x17\n"
	"	ret\n"
	".cfi_endproc\n"
	".size plx_jump, .-plx_jump\n"
	".popsection\n");
#define STUB_CODE "	hint #34\n	mov x16, #%c0\n	b plx_first\n"
#endif

__asm__(".pushsection .text.startup.plx, \"ax\"\n"
	"plx_first:\n" PLX_ENTER(plx_real_find) ".popsection\n");

/* Never called: within a function the compiler tells the code the places. */
static __attribute__((used)) void stubs(void)
{
#define STUB(name)                                                                                 \
	__asm__ volatile(".pushsection .text.startup.plx, \"ax\"\n"                                \
			 ".globl plx_first_" #name "\n"                                            \
			 ".hidden plx_first_" #name "\n"                                           \
			 ".type plx_first_" #name ", %%function\n"                                 \
			 "plx_first_" #name ":\n" STUB_CODE ".popsection"                          \
			 :                                                                         \
			 : "i"(offsetof(struct plx_real, name)));
	PLX_REALS(STUB)
#undef STUB
}
