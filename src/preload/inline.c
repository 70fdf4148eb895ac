/* SPDX-License-Identifier: MIT */
/*
 * Programs that call the kernel by instructions of their own, which we do not see.
 *
 * What such a call finds under a number of ours is a count of 0. Code that uses its own
 * descriptors so does no harm; an event loop does, as it is given those of others. In Rust the
 * loops of polling, async-io, smol and calloop call the kernel through rustix, whose calls are
 * instructions in the program, and what they watch comes from libc often: an eventfd, or the epoll
 * of a C library. It would never become ready.
 *
 * So before the first object is adopted the code of the program and of its libraries is looked
 * through for such a call of epoll_ctl. With one in it no descriptor is adopted, unless the
 * operator says that it may be (`--adopt=inline`): it is not known which descriptors will meet it.
 *
 * What is looked for is the number being put where the instruction wants it, and the instruction
 * soon after: all of rustix is inlined. Without optimization it is not; there the number is the
 * argument of a function, and that of epoll_create1 has to be one as well, for a smaller number
 * alone may mean anything.
 *
 * Looking takes 0.15 ms for a megabyte of code. So it is done only where there may be something to
 * find: the imports of an object tell if Rust's library is in it.
 *
 * Go makes all calls so, and that it is in an object is told by a note of its linker. What C code
 * in a Go program is given by libc Go may watch, too; and it may close it, behind our back: who is
 * given the number next would be served what has been there. So no descriptor is adopted there
 * either.
 *
 * A program that contains liburing makes rings of io_uring so. What a ring is asked to wait for is
 * the kernel's: with a ring mapped no descriptor is adopted, whatever the operator says.
 *
 * Code that is loaded later is not looked at, nor is that of other languages: C calls libc. Rings
 * that are made later by instructions are not seen.
 */
#include "preload/preload.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

/* Rust's library calls both. C++'s calls the second, and C programs may call the first. */
static const char error_import[] = "\0__xpg_strerror_r";
static const char unwind_import[] = "\0_Unwind_GetTextRelBase";

/* Rust's objects have few names; only what exports a lot has more. */
#define STRINGS_MAX (256u << 10)
/* More than any linker writes. */
#define NOTES_MAX (64u << 10)
/* The smallest that there is. */
#define PAGE 4096ul
/* From the number to the instruction: there may be arguments to move. */
#define NEAR 64

#if defined(__x86_64__)
/* mov $233, %eax; syscall */
static const unsigned char number[] = {0xb8, 0xe9, 0, 0, 0};
static const unsigned char instruction[] = {0x0f, 0x05};
/* mov $233, %edi; call, and the same with 291 */
static const unsigned char ctl_argument[] = {0xbf, 0xe9, 0, 0, 0, 0xe8};
static const unsigned char create_argument[] = {0xbf, 0x23, 0x01, 0, 0, 0xe8};
#else
/* mov w8, #21; svc #0 */
static const unsigned char number[] = {0xa8, 0x02, 0x80, 0x52};
static const unsigned char instruction[] = {0x01, 0, 0, 0xd4};
/* mov w0, #21, and #20 */
static const unsigned char ctl_argument[] = {0xa0, 0x02, 0x80, 0x52};
static const unsigned char create_argument[] = {0x80, 0x02, 0x80, 0x52};
#endif

/* Of the note that names what Go has built. */
#define GO_BUILD_ID 4
static const char go_name[] = "Go";

struct code {
	const unsigned char *start;
	size_t size;
};

typedef unsigned char vector __attribute__((vector_size(16), aligned(1)));
typedef uint64_t halves __attribute__((vector_size(16)));

/* memmem, for what is nowhere mostly, by its second byte and third: 16 places at a time. */
static const unsigned char *find(struct code in, const unsigned char *what, size_t size)
{
	const vector second = (vector){0} + what[1], third = (vector){0} + what[2];
	const unsigned char *p = in.start, *end = in.start + in.size;

	for (; end - p >= 64 + 2; p += 64) {
		vector any = {0};

		for (int i = 0; i < 64; i += 16)
			any |= (vector)(*(const vector *)(p + i + 1) == second) &
			       (vector)(*(const vector *)(p + i + 2) == third);
		if (plx_likely(!(((halves)any)[0] | ((halves)any)[1])))
			continue;
		for (int i = 0; i < 64; i++)
			if (end - (p + i) >= (long)size && memcmp(p + i, what, size) == 0)
				return p + i;
	}
	return memmem(p, end - p, what, size);
}

static bool calls_epoll(struct code in)
{
	struct code left = in;
	const unsigned char *p;

	while ((p = find(left, number, sizeof(number)))) {
		left.start = p + sizeof(number);
		left.size = in.start + in.size - left.start;
		if (memmem(left.start, left.size < NEAR ? left.size : NEAR, instruction,
			   sizeof(instruction)))
			return true;
	}
	return find(in, ctl_argument, sizeof(ctl_argument)) &&
	       find(in, create_argument, sizeof(create_argument)) &&
	       memmem(in.start, in.size, instruction, sizeof(instruction));
}

/*
 * What an object's headers tell need not be there: only what the loader has loaded of the file is
 * looked at, and of that what can be read. (The file may be shorter than it says, and a program may
 * unmap or protect a part of itself.) NULL: none of it is.
 */
static const void *loaded(const struct dl_phdr_info *o, uintptr_t address, size_t size)
{
	uintptr_t in_object = address - o->dlpi_addr;
	const ElfW(Phdr) *p = o->dlpi_phdr, *end = p + o->dlpi_phnum;

	for (; p < end; p++) {
		uintptr_t from = in_object - p->p_vaddr;

		if (p->p_type == PT_LOAD && (p->p_flags & PF_R) && in_object >= p->p_vaddr &&
		    from <= p->p_filesz && size <= p->p_filesz - from)
			break;
	}
	if (p == end || !size)
		return NULL;
	for (uintptr_t page = address & -PAGE; page < address + size; page += PAGE)
		if (!plx_string_readable(page))
			return NULL;
	return (const void *)address;
}

static bool is_rust(const struct dl_phdr_info *o, const ElfW(Dyn) * d, size_t size)
{
	uintptr_t at = 0;
	const char *strings;
	size_t length = 0;

	for (; size >= sizeof(*d) && d->d_tag != DT_NULL; d++, size -= sizeof(*d)) {
		/* The loader turns this offset into an address, not in all objects. */
		if (d->d_tag == DT_STRTAB)
			at = d->d_un.d_ptr < o->dlpi_addr ? o->dlpi_addr + d->d_un.d_ptr
							  : d->d_un.d_ptr;
		else if (d->d_tag == DT_STRSZ)
			length = d->d_un.d_val;
	}
	strings = length <= STRINGS_MAX ? loaded(o, at, length) : NULL;
	return strings && memmem(strings, length, unwind_import, sizeof(unwind_import)) &&
	       memmem(strings, length, error_import, sizeof(error_import));
}

/* One of the notes in a segment of them. */
static bool has_go_note(struct code in)
{
	while (in.start && in.size >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) note;
		size_t name, desc;

		memcpy(&note, in.start, sizeof(note));
		name = (note.n_namesz + 3ul) & ~3ul;
		desc = (note.n_descsz + 3ul) & ~3ul;
		if (name > in.size - sizeof(note) || desc > in.size - sizeof(note) - name)
			return false;
		if (note.n_type == GO_BUILD_ID && name >= sizeof(go_name) &&
		    memcmp(in.start + sizeof(note), go_name, sizeof(go_name)) == 0)
			return true;
		in.start += sizeof(note) + name + desc;
		in.size -= sizeof(note) + name + desc;
	}
	return false;
}

static bool calls_unseen(const struct dl_phdr_info *o)
{
	const ElfW(Phdr) *p = o->dlpi_phdr, *end = p + o->dlpi_phnum;
	const ElfW(Dyn) *d = NULL;
	size_t d_size = 0;

	for (; p < end; p++) {
		uintptr_t at = o->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_DYNAMIC) {
			d = loaded(o, at, p->p_filesz);
			d_size = p->p_filesz;
		}
		/* Those that are aligned to more are of the compiler's. */
		if (p->p_type == PT_NOTE && p->p_align <= 4 && p->p_filesz <= NOTES_MAX &&
		    has_go_note((struct code){loaded(o, at, p->p_filesz), p->p_filesz}))
			return true;
	}
	if (!d || !is_rust(o, d, d_size))
		return false;
	for (p = o->dlpi_phdr; p < end; p++) {
		struct code code = {.size = p->p_filesz};

		if (p->p_type != PT_LOAD || (p->p_flags & (PF_R | PF_X)) != (PF_R | PF_X))
			continue;
		code.start = loaded(o, o->dlpi_addr + p->p_vaddr, p->p_filesz);
		if (code.start && calls_epoll(code))
			return true;
	}
	return false;
}

static int look_at(struct dl_phdr_info *o, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	return calls_unseen(o);
}

/* The headers of a loaded object, as dl_iterate_phdr tells them; false if they are elsewhere. */
static bool headers(const struct link_map *m, bool program, struct dl_phdr_info *o)
{
	const ElfW(Ehdr) *h = (const void *)m->l_addr;
	const ElfW(Phdr) * p;

	*o = (struct dl_phdr_info){.dlpi_addr = m->l_addr};
	if (program) {
		o->dlpi_phdr = (const void *)plx_auxv(AT_PHDR);
		o->dlpi_phnum = (ElfW(Half))plx_auxv(AT_PHNUM);
	} else if (m->l_addr && m->l_addr % PAGE == 0 && plx_string_readable(m->l_addr) &&
		   memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_phentsize == sizeof(*p) &&
		   h->e_phoff <= PAGE && h->e_phnum <= (PAGE - h->e_phoff) / sizeof(*p)) {
		o->dlpi_phdr = (const void *)(m->l_addr + h->e_phoff);
		o->dlpi_phnum = h->e_phnum;
	}
	for (p = o->dlpi_phdr; p && p < o->dlpi_phdr + o->dlpi_phnum; p++)
		if (p->p_type == PT_DYNAMIC)
			return m->l_addr + p->p_vaddr == (uintptr_t)m->l_ld;
	return false;
}

/*
 * Not by dl_iterate_phdr, where the list is as safe without the loader's lock: in the child of a
 * fork that lock may be held by a thread that is not there. What was loaded at the start stays.
 * What came later does while there is one thread; of that, what such a child finds half unloaded is
 * not looked at.
 */
static bool any_calls_unseen(void)
{
	struct link_map *last, *first = plx_real_objects(&last);
	bool later = false;

	for (struct link_map *m = first; m; m = m->l_next) {
		struct dl_phdr_info o;

		if (headers(m, m == first, &o)) {
			if (calls_unseen(&o))
				return true;
		} else if (!later) {
			break;
		}
		if (m == last) {
			if (!m->l_next)
				return false;
			/* Another may load or unload something. */
			if (!plx_one_thread())
				break;
			later = true;
		}
	}
	return !later && dl_iterate_phdr(look_at, NULL);
}

bool (*plx_uring_followed)(uintptr_t at);

static void mapping(void *arg, const char *line)
{
	bool (*followed)(uintptr_t at) = plx_load(&plx_uring_followed);

	*(bool *)arg |= strstr(line, "anon_inode:[io_uring]") &&
			!(followed && followed(strtoul(line, NULL, 16)));
}

static bool has_ring(void)
{
	bool found = false;

	return plx_cold_lines("/proc/self/maps", mapping, &found) && found;
}

void plx_inline_look(void)
{
	/* Two threads that come first may both look, and find the same. */
	static uint32_t looked;

	if (plx_likely(plx_load_acq(&looked)))
		return;
	if (has_ring())
		plx_stop_adopting_descriptors(PLX_OUT_IO_URING);
	else if (!(plx_px_adopt & PLX_ADOPT_INLINE) && any_calls_unseen())
		plx_stop_adopting_descriptors(PLX_OUT_SYSCALL);
	plx_store_rel(&looked, 1);
}
