/* SPDX-License-Identifier: MIT */
/*
 * differential run PROFILE FIRST COUNT
 *     runs COUNT sequences; a line for each: its number, the digest of all results, the
 *     number of steps, and what log_may has said
 * differential show PROFILE NUMBER [KEEP] [BEFORE]
 *     runs one sequence, of it only the steps KEEP (as 0-4,7,9; - for all), after the BEFORE
 *     sequences before it, and prints the calls with their results
 *
 * DIFFERENTIAL_STORM in the environment is how many microseconds signals are to be apart, at any
 * instruction.
 *
 * Both print the same on the kernel and on Pollux, except for what log_may allows, or one of them
 * is wrong.
 */
#include "differential.h"

#include <sys/mman.h>
#include <sys/resource.h>

static const char *const profiles[] = {"inproc", "mixed", "nested", "fork"};

static struct gen gen;
static struct step steps[STEPS + 2 * SLOTS];

static int find_profile(const char *name)
{
	for (int i = 0; i < PROFILE_COUNT; i++)
		if (!strcmp(name, profiles[i]))
			return i;
	fprintf(stderr, "no profile %s\n", name);
	exit(2);
}

/* Everything that a sequence has left open goes, by one of the ways there are. */
static void tidy(uint64_t number, const struct rlimit *lim)
{
	setrlimit(RLIMIT_NOFILE, lim);
	if (number % 2) {
		close_range(FIRST_NUMBER, ~0u, 0);
	} else {
		for (int fd = FIRST_NUMBER; fd < LOW_NUMBERS + 8; fd++)
			close(fd);
		for (int fd = HIGH_NUMBER; fd < HIGH_NUMBER + HIGH_NUMBERS; fd++)
			close(fd);
		for (int fd = RECEIVED; fd <= LAST_NUMBER; fd++)
			close(fd);
	}
	for (int i = 0; i < SLOTS; i++)
		slot_number[i] = -1;
}

/* The steps that the text names: numbers and ranges, in order. */
static int keep_steps(struct step *all, int n, const char *text)
{
	int kept = 0;

	if (!strcmp(text, "-"))
		return n;
	while (*text) {
		char *end;
		int from = strtol(text, &end, 10), to = from;

		if (*end == '-')
			to = strtol(end + 1, &end, 10);
		for (int i = from; i <= to && i < n; i++)
			all[kept++] = all[i];
		text = *end ? end + 1 : end;
	}
	return kept;
}

static int prepare(enum profile profile, uint64_t number, const char *keep)
{
	int n = generate(&gen, profile, number, steps);

	if (!keep)
		return n;
	say("/* %d steps */\n", n);
	n = keep_steps(steps, n, keep);
	/* What the model says about a step depends on those before it. */
	model_init(&gen.m, profile);
	for (int i = 0; i < n; i++)
		model_apply(&gen.m, &steps[i]);
	return n;
}

int main(int argc, char **argv)
{
	bool show = argc > 3 && !strcmp(argv[1], "show");
	uint64_t first, count;
	const char *adopt = getenv("POLLUX_ADOPT");
	struct rlimit lim;
	int profile;

	if (argc < 4 || (!show && (strcmp(argv[1], "run") || argc != 5))) {
		fprintf(stderr, "usage: differential run PROFILE FIRST COUNT\n"
				"       differential show PROFILE NUMBER [KEEP] [BEFORE]\n");
		return 2;
	}
	profile = find_profile(argv[2]);
	model_moves = !adopt || strcmp(adopt, "always");
	first = strtoull(argv[3], NULL, 0);
	count = show ? (argc > 5 ? strtoull(argv[5], NULL, 0) : 0) + 1 : strtoull(argv[4], NULL, 0);
	if (show)
		first -= count - 1;
	close_range(FIRST_NUMBER, ~0u, 0);
	getrlimit(RLIMIT_NOFILE, &lim);
	if (lim.rlim_cur <= LAST_NUMBER) {
		lim.rlim_cur = LAST_NUMBER + 1;
		if (setrlimit(RLIMIT_NOFILE, &lim) < 0) {
			fprintf(stderr, "the limit of descriptors is below %d\n", LAST_NUMBER);
			return 77;
		}
	}
	settled_model = &gen.m;
	run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	ops_init();
	storm_start();
	tidy(0, &lim);
	for (uint64_t i = first; i < first + count; i++) {
		bool last = show && i == first + count - 1;
		static char line[64 + sizeof(run->may)];
		int n;

		run->hash = run->steps = run->may_len = 0;
		run->may[0] = 0;
		run->verbose = last;
		n = prepare(profile, i, last ? (argc > 4 ? argv[4] : "-") : NULL);
		run_steps(steps, n);
		tidy(i, &lim);
		n = snprintf(line, sizeof(line), "%llu %016llx %llu%s\n", (unsigned long long)i,
			     (unsigned long long)run->hash, (unsigned long long)run->steps,
			     run->may);
		if (!show && write(1, line, n) != n)
			return 1;
	}
	return 0;
}
