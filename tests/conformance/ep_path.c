/* SPDX-License-Identifier: MIT */
/* EP-PATH: how many ways up a file may have through epolls that watch epolls. */
#include "waiting.h"

#include <sys/resource.h>

#define MAX_LENGTH 5
#define NEED_FDS 2000

static const int path_limit[MAX_LENGTH + 1] = {0, INT_MAX, 500, 100, 50, 10};

/* Many epolls, or many descriptors of one, that are closed together. */
struct many {
	int fd[1600];
	int n;
};

static void many_close(struct many *m)
{
	while (m->n > 0)
		close(m->fd[--m->n]);
}

static int many_new(struct many *m)
{
	return m->fd[m->n++] = ep_new();
}

/* n new epolls that watch target, all of which must succeed. */
static void watch_n(struct many *m, int target, int n)
{
	for (int i = 0; i < n; i++)
		ep_add(many_new(m), target, EPOLLIN, 5);
}

/* One more epoll that watches target, which must be refused; it is closed again. */
static void watch_refused(int target)
{
	int top = ep_new();

	assert_errno(ep_ctl(top, EPOLL_CTL_ADD, target, EPOLLIN, 6), EINVAL);
	assert_errno(epoll_ctl(top, EPOLL_CTL_DEL, target, NULL), ENOENT);
	assert_int_equal(ep_count(top), 0);
	close(top);
}

static void watch_accepted(int target)
{
	int top = ep_new();

	ep_add(top, target, EPOLLIN, 6);
	close(top);
}

/* n epolls e[0] (bottom) .. e[n-1], each watched by the next. */
static void tower(int *e, int n)
{
	for (int i = 0; i < n; i++) {
		e[i] = ep_new();
		if (i > 0)
			ep_add(e[i], e[i - 1], EPOLLIN, 1);
	}
}

static void close_n(const int *e, int n)
{
	for (int i = 0; i < n; i++)
		close(e[i]);
}

static void need_fds(void)
{
	struct rlimit r;

	assert_ok(getrlimit(RLIMIT_NOFILE, &r));
	if (r.rlim_cur >= NEED_FDS)
		return;
	r.rlim_cur = NEED_FDS;
	if (r.rlim_max < NEED_FDS || setrlimit(RLIMIT_NOFILE, &r) == -1) {
		print_message("skipped: RLIMIT_NOFILE allows fewer than %d descriptors\n",
			      NEED_FDS);
		skip();
	}
}

static void EP_PATH_01_limit_at_every_length(void **state)
{
	need_fds();
	for (int length = 2; length <= MAX_LENGTH; length++) {
		struct subject s = subject_new(KIND_OF(state));
		struct many tops = {.n = 0};
		int e[MAX_LENGTH - 1];

		tower(e, length - 1);
		ep_add(e[0], s.fd, EPOLLIN, 1);
		watch_n(&tops, e[length - 2], path_limit[length]);
		watch_refused(e[length - 2]);
		/* All of them work. */
		subject_fill(&s);
		assert_true(ep_one(tops.fd[0], EPOLLIN, 5));
		assert_true(ep_one(tops.fd[tops.n - 1], EPOLLIN, 5));
		many_close(&tops);
		close_n(e, length - 1);
		subject_close(&s);
	}
}

/* The number of paths of a length is what counts, not their shape: 10 x 10 and 20 x 25. */
static void EP_PATH_01_paths_multiply(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct many middle = {.n = 0}, tops = {.n = 0};
	int bottom = ep_new(), top = ep_new();

	need_fds();
	ep_add(bottom, s.fd, EPOLLIN, 1);
	watch_n(&middle, bottom, 10);
	for (int i = 0; i < 10; i++) {
		many_new(&tops);
		for (int j = 0; j < 10; j++)
			ep_add(tops.fd[i], middle.fd[j], EPOLLIN, 1);
	}
	assert_errno(ep_ctl(top, EPOLL_CTL_ADD, middle.fd[3], EPOLLIN, 1), EINVAL);
	ep_del(tops.fd[0], middle.fd[9]);
	ep_add(top, middle.fd[3], EPOLLIN, 1);
	assert_errno(ep_ctl(tops.fd[0], EPOLL_CTL_ADD, middle.fd[9], EPOLLIN, 1), EINVAL);
	many_close(&tops);
	many_close(&middle);
	close(bottom);
	close(top);

	/* 20 epolls on the file itself, 25 tops on each: 500 paths of length 2. */
	for (int i = 0; i < 20; i++)
		ep_add(many_new(&middle), s.fd, EPOLLIN, 1);
	for (int i = 0; i < 20; i++)
		watch_n(&tops, middle.fd[i], 25);
	watch_refused(middle.fd[7]);
	many_close(&middle);
	many_close(&tops);
	subject_close(&s);
}

static void EP_PATH_01_lengths_are_counted_separately(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct many tops = {.n = 0};
	int a = ep_new(), e[2];

	need_fds();
	ep_add(a, s.fd, EPOLLIN, 1);
	watch_n(&tops, a, path_limit[2]);
	tower(e, 2);
	/* While e[1] is not watched itself it is the end of a path of length 2. */
	assert_errno(ep_ctl(e[0], EPOLL_CTL_ADD, s.fd, EPOLLIN, 1), EINVAL);
	ep_del(tops.fd[0], a);
	ep_add(e[0], s.fd, EPOLLIN, 1);
	watch_n(&tops, e[1], path_limit[3]);
	ep_add(tops.fd[0], a, EPOLLIN, 5);
	watch_refused(e[1]);
	watch_refused(a);
	many_close(&tops);
	close_n(e, 2);
	close(a);
	subject_close(&s);
}

static void EP_PATH_02_no_limit_at_length_one(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct many eps = {.n = 0};

	need_fds();
	for (int i = 0; i < 1500; i++)
		ep_add(many_new(&eps), s.fd, EPOLLIN, (uint64_t)i);
	subject_fill(&s);
	for (int i = 0; i < 1500; i++)
		assert_true(ep_one(eps.fd[i], EPOLLIN, (uint64_t)i));
	many_close(&eps);
	subject_close(&s);
}

static void EP_PATH_03_plain_add_to_unwatched_epoll_is_not_checked(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct many tops = {.n = 0}, plain = {.n = 0};
	int a = ep_new(), watched = ep_new(), above = ep_new();

	need_fds();
	ep_add(a, s.fd, EPOLLIN, 1);
	watch_n(&tops, a, path_limit[2]);
	for (int i = 0; i < 100; i++)
		ep_add(many_new(&plain), s.fd, EPOLLIN, 2);
	/* One of these epolls cannot become watched, ... */
	watch_refused(plain.fd[0]);
	/* ... and a watched one cannot take the file. */
	ep_add(above, watched, EPOLLIN, 1);
	assert_errno(ep_ctl(watched, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1), EINVAL);
	assert_errno(epoll_ctl(watched, EPOLL_CTL_DEL, s.fd, NULL), ENOENT);
	subject_fill(&s);
	assert_true(ep_one(plain.fd[99], EPOLLIN, 2));
	assert_int_equal(ep_count(watched), 0);
	assert_int_equal(ep_count(above), 0);
	close(watched);
	close(above);
	many_close(&plain);
	many_close(&tops);
	close(a);
	subject_close(&s);
}

/* The file that has too many paths lies two levels under the target, behind one that has few. */
static void EP_PATH_04_every_file_below_the_target_is_counted(void **state)
{
	struct subject full = subject_new(KIND_OF(state)), free_one = subject_new(KIND_OF(state));
	struct many tops = {.n = 0};
	int low = ep_new(), mid = ep_new(), direct = ep_new();

	need_fds();
	ep_add(low, full.fd, EPOLLIN, 1);
	ep_add(mid, free_one.fd, EPOLLIN, 2);
	ep_add(mid, low, EPOLLIN, 3);
	/* 99 tops, and mid itself is no end of a path once it is watched. */
	watch_n(&tops, mid, path_limit[3]);
	watch_refused(mid);
	ep_del(mid, low);
	/* Only the near file is below now. */
	watch_accepted(mid);
	ep_add(direct, free_one.fd, EPOLLIN, 1);
	watch_accepted(direct);
	ep_add(mid, low, EPOLLIN, 3);
	watch_refused(mid);
	ep_del(low, full.fd);
	watch_accepted(mid);
	close(direct);
	close(mid);
	close(low);
	many_close(&tops);
	subject_close(&full);
	subject_close(&free_one);
}

static void EP_PATH_04_plain_target_counts_that_file_alone(void **state)
{
	struct subject full = subject_new(KIND_OF(state)), other = subject_new(KIND_OF(state));
	struct many tops = {.n = 0};
	int a = ep_new(), b = ep_new(), above = ep_new();

	need_fds();
	ep_add(a, full.fd, EPOLLIN, 1);
	watch_n(&tops, a, path_limit[2]);
	ep_add(above, b, EPOLLIN, 1);
	ep_add(b, other.fd, EPOLLIN, 1);
	assert_errno(ep_ctl(b, EPOLL_CTL_ADD, full.fd, EPOLLIN, 1), EINVAL);
	/* By way of a it is a path of length 3, of which there are none yet. */
	ep_add(b, a, EPOLLIN, 1);
	ep_del(b, other.fd);
	ep_add(b, other.fd, EPOLLIN, 1);
	close(b);
	close(a);
	close(above);
	many_close(&tops);
	subject_close(&full);
	subject_close(&other);
}

static void EP_PATH_05_empty_epoll_may_have_any_number_of_watchers(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct many tops = {.n = 0};
	int inner = ep_new();

	need_fds();
	watch_n(&tops, inner, 700);
	assert_errno(ep_ctl(inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1), EINVAL);
	assert_errno(epoll_ctl(inner, EPOLL_CTL_DEL, s.fd, NULL), ENOENT);
	assert_errno(ep_ctl(inner, EPOLL_CTL_MOD, s.fd, EPOLLIN, 1), ENOENT);
	subject_fill(&s);
	assert_int_equal(ep_count(inner), 0);
	assert_int_equal(ep_count(tops.fd[0]), 0);
	/* Nor can a second level come on top, once a file is there. */
	while (tops.n > path_limit[2])
		close(tops.fd[--tops.n]);
	ep_add(inner, s.fd, EPOLLIN, 1);
	assert_true(ep_one(tops.fd[path_limit[2] - 1], EPOLLIN, 5));
	watch_refused(inner);
	many_close(&tops);
	close(inner);
	subject_close(&s);
}

static void EP_PATH_06_each_duplicate_of_the_inner_is_a_path(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct many dups = {.n = 0};
	int inner = ep_new(), outer = ep_new(), d;

	need_fds();
	ep_add(inner, s.fd, EPOLLIN, 1);
	for (int i = 0; i < path_limit[2]; i++) {
		d = dups.fd[dups.n++] = dup_of(inner);
		ep_add(outer, d, EPOLLIN, (uint64_t)i);
	}
	assert_errno(ep_ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 1), EINVAL);
	watch_refused(inner);
	ep_del(outer, dups.fd[17]);
	ep_add(outer, inner, EPOLLIN, 1);
	assert_errno(ep_ctl(outer, EPOLL_CTL_ADD, dups.fd[17], EPOLLIN, 1), EINVAL);
	many_close(&dups);
	close(outer);
	close(inner);
	subject_close(&s);
}

static void EP_PATH_07_each_file_is_counted_by_itself(void **state)
{
	struct subject s = subject_new(KIND_OF(state)), more[KIND_SOCKET + 1];
	struct many tops = {.n = 0};
	int inner = ep_new();

	need_fds();
	ep_add(inner, s.fd, EPOLLIN, 1);
	watch_n(&tops, inner, path_limit[2]);
	for (int k = 0; k < KIND_SOCKET + 1; k++) {
		more[k] = subject_new(k);
		ep_add(inner, more[k].fd, EPOLLIN, 2);
		subject_fill(&more[k]);
		assert_true(ep_one(tops.fd[path_limit[2] / 2], EPOLLIN, 5));
		subject_drain(&more[k]);
	}
	watch_refused(inner);
	many_close(&tops);
	close(inner);
	for (int k = 0; k < KIND_SOCKET + 1; k++)
		subject_close(&more[k]);
	subject_close(&s);
}

static void EP_PATH_08_close_and_del_lower_the_counts(void **state)
{
	struct subject s = subject_new(KIND_OF(state)), other = subject_new(KIND_OF(state));
	struct many tops = {.n = 0};
	int inner = ep_new(), second = ep_new();

	need_fds();
	ep_add(inner, s.fd, EPOLLIN, 1);
	watch_n(&tops, inner, path_limit[2]);
	watch_refused(inner);
	/* An epoll that is closed. */
	close(tops.fd[--tops.n]);
	watch_n(&tops, inner, 1);
	watch_refused(inner);
	/* A link that is deleted. */
	ep_del(tops.fd[0], inner);
	watch_accepted(inner);
	ep_add(tops.fd[0], inner, EPOLLIN, 1);
	watch_refused(inner);
	/* The file's own item, deleted and made again elsewhere. */
	ep_del(inner, s.fd);
	watch_accepted(inner);
	ep_add(second, s.fd, EPOLLIN, 1);
	watch_accepted(second);
	watch_n(&tops, second, 1);
	assert_errno(ep_ctl(inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1), EINVAL);
	close(second);
	ep_add(inner, s.fd, EPOLLIN, 1);
	/* The file that is closed. */
	watch_refused(inner);
	subject_close(&s);
	watch_accepted(inner);
	ep_add(inner, other.fd, EPOLLIN, 1);
	watch_refused(inner);
	many_close(&tops);
	close(inner);
	subject_close(&other);
}

int main(void)
{
	static const struct CMUnitTest ep_path[] = {
		EACH_KIND(EP_PATH_01_limit_at_every_length),
		EACH_KIND(EP_PATH_01_paths_multiply),
		EACH_KIND(EP_PATH_01_lengths_are_counted_separately),
		EACH_KIND(EP_PATH_02_no_limit_at_length_one),
		EACH_KIND(EP_PATH_03_plain_add_to_unwatched_epoll_is_not_checked),
		EACH_KIND(EP_PATH_04_every_file_below_the_target_is_counted),
		EACH_KIND(EP_PATH_04_plain_target_counts_that_file_alone),
		EACH_KIND(EP_PATH_05_empty_epoll_may_have_any_number_of_watchers),
		EACH_KIND(EP_PATH_06_each_duplicate_of_the_inner_is_a_path),
		EACH_KIND(EP_PATH_07_each_file_is_counted_by_itself),
		EACH_KIND(EP_PATH_08_close_and_del_lower_the_counts),
	};

	return run_group(ep_path);
}
