/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include "base/sys.h"

#if defined(__x86_64__)
#define ENTRY "__vdso_clock_gettime"
#else
#define ENTRY "__kernel_clock_gettime"
#endif

plx_clock_entry *plx_clock_found;

static int by_system_call(clockid_t clock, struct timespec *ts)
{
	return (int)plx_sys2(SYS_clock_gettime, clock, ts);
}

static plx_clock_entry *entry_in(const ElfW(Ehdr) * image)
{
	const ElfW(Phdr) *p = (const void *)((const char *)image + image->e_phoff);
	const ElfW(Sym) *symbol = NULL;
	const ElfW(Dyn) *d = NULL;
	const char *strings = NULL;
	uintptr_t base = 0;
	bool loaded = false;

	for (uint32_t i = 0; i < image->e_phnum; i++, p++) {
		if (p->p_type == PT_LOAD && !loaded) {
			base = (uintptr_t)image + p->p_offset - p->p_vaddr;
			loaded = true;
		} else if (p->p_type == PT_DYNAMIC) {
			d = (const void *)((const char *)image + p->p_offset);
		}
	}
	if (!loaded || !d)
		return NULL;
	for (; d->d_tag != DT_NULL; d++) {
		const void *at = (const void *)(base + d->d_un.d_ptr);

		if (d->d_tag == DT_STRTAB)
			strings = at;
		else if (d->d_tag == DT_SYMTAB)
			symbol = at;
	}
	if (!strings || !symbol)
		return NULL;
	/* The kernel's linker script has the strings behind the symbols. */
	for (; (const char *)(symbol + 1) <= strings; symbol++)
		if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
		    strcmp(strings + symbol->st_name, ENTRY) == 0)
			return (plx_clock_entry *)(base + symbol->st_value);
	return NULL;
}

/* Two threads, or a handler of one, may both look, and find the same. */
plx_clock_entry *plx_clock_find(void)
{
	const ElfW(Ehdr) *image = (const void *)plx_auxv(AT_SYSINFO_EHDR);
	plx_clock_entry *entry = image ? entry_in(image) : NULL;

	if (!entry)
		entry = by_system_call;
	plx_store(&plx_clock_found, entry);
	return entry;
}
