/* SPDX-License-Identifier: MIT */
#include "base/slab.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__) || PLX_TSAN || PLX_FAULTS
#define SLAB_OFF 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_OFF 1
#endif
#endif

#if SLAB_OFF
void *plx_slab_alloc(void)
{
	return plx_zalloc(PLX_SLAB_OBJECT);
}

void plx_slab_free(void *p)
{
	plx_free(p);
}

void plx_slab_init(void)
{
}

void plx_slab_before_fork(void)
{
}

void plx_slab_after_fork(void)
{
}
#else
#define MAGAZINE 64
#define CHUNK (256 * 1024)

struct free_object {
	struct free_object *next;
};

/* depot_lock: what no thread has in its magazine. */
static plx_lock_t depot_lock;
static struct free_object *depot;

static __thread struct {
	uint32_t n;
	void *obj[MAGAZINE];
} * magazine;
static pthread_key_t magazine_key;
static pthread_once_t magazine_once = PTHREAD_ONCE_INIT;

static void depot_put(void **obj, uint32_t n)
{
	plx_lock(&depot_lock, PLX_RANK_SLAB);
	for (uint32_t i = 0; i < n; i++) {
		struct free_object *f = obj[i];

		f->next = depot;
		depot = f;
	}
	plx_unlock(&depot_lock, PLX_RANK_SLAB);
}

static void magazine_exit(void *p)
{
	PLX_INSIDE();
	magazine = p;
	depot_put(magazine->obj, magazine->n);
	plx_mem_put(magazine);
	magazine = NULL;
}

static void magazine_init(void)
{
	pthread_key_create(&magazine_key, magazine_exit);
}

void plx_slab_init(void)
{
	pthread_once(&magazine_once, magazine_init);
}

static bool magazine_new(void)
{
	plx_slab_init();
	magazine = plx_mem_get(sizeof(*magazine));
	if (!magazine)
		return false;
	magazine->n = 0;
	pthread_setspecific(magazine_key, magazine);
	return true;
}

/* depot_lock held: a fresh chunk, cut up. */
static bool depot_grow(void)
{
	char *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return false;
	for (size_t at = CHUNK; at > 0; at -= PLX_SLAB_OBJECT) {
		struct free_object *f = (struct free_object *)(chunk + at - PLX_SLAB_OBJECT);

		f->next = depot;
		depot = f;
	}
	return true;
}

static void *depot_get(void)
{
	struct free_object *f;

	plx_lock(&depot_lock, PLX_RANK_SLAB);
	if (!depot && !depot_grow()) {
		plx_unlock(&depot_lock, PLX_RANK_SLAB);
		return NULL;
	}
	f = depot;
	depot = f->next;
	while (magazine && depot && magazine->n < MAGAZINE / 2) {
		magazine->obj[magazine->n++] = depot;
		depot = depot->next;
	}
	plx_unlock(&depot_lock, PLX_RANK_SLAB);
	return f;
}

void *plx_slab_alloc(void)
{
	void *p;

	if (plx_likely(magazine && magazine->n))
		p = magazine->obj[--magazine->n];
	else if (magazine || magazine_new())
		p = depot_get();
	else
		p = NULL;
	return p ? memset(p, 0, PLX_SLAB_OBJECT) : NULL;
}

void plx_slab_free(void *p)
{
	if (plx_unlikely(!p))
		return;
	if (plx_unlikely(!magazine) && !magazine_new()) {
		depot_put(&p, 1);
		return;
	}
	if (plx_unlikely(magazine->n == MAGAZINE)) {
		magazine->n /= 2;
		depot_put(magazine->obj + magazine->n, MAGAZINE / 2);
	}
	magazine->obj[magazine->n++] = p;
}

void plx_slab_before_fork(void)
{
	plx_lock(&depot_lock, PLX_RANK_SLAB);
}

void plx_slab_after_fork(void)
{
	plx_unlock(&depot_lock, PLX_RANK_SLAB);
}
#endif
