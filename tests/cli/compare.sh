#!/bin/sh
# SPDX-License-Identifier: MIT
#
# compare.sh POLLUX - tests of `pollux bench compare` with constructed results; says TAP.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/tap.sh"

# results NAME CHANGE...: writes NAME.json
results()
{
	name=$1
	shift
	python3 "$here/results.py" "$scratch/$name.json" "$@" || exit 1
}

# compare OLD NEW OPTION...
compare()
{
	old=$1
	new=$2
	shift 2
	call "$pollux" bench compare "$scratch/$old.json" "$scratch/$new.json" "$@"
}

# says NAME PATTERN: the last output has such a line.
says()
{
	grep -Eq "$2" "$out"
	report $? "$1"
}

results base
results worse events=1.5
results better ready=3.0
results slightly events=2.06
results noisy events=1.5 events~2.0
results three pairs=3
results three-worse pairs=3 events=1.5
results three-close pairs=3 events=1.75
results one pairs=1
results one-worse pairs=1 events=1.0
results fewer ready-
results failed 'events!'
results skipped 'ready?'
results other --bench storm

compare base base
expect "a file against itself: 0" 0
says "everything is the same" ': 0 better, 0 worse, 24 the same, 0 unclear; 0 in the old'
compare base worse
expect "a ratio that fell: 1" 1
says "it is worse" '8 threads, coalescing: rate +2\.00x +1\.50x +0\.75x +\[.*\] worse$'
says "and what did not change is not" ': 0 better, 6 worse, 18 the same'
compare worse base
expect "the other way round: 1" 1
says "it is better" ': 6 better, 0 worse, 18 the same'
compare base better
expect "a ratio that rose: 1" 1
says "of each of the sides" '8 threads, coalescing: rate to rwlock .* better$'
compare base slightly
expect "a difference below the threshold: 0" 0
compare base slightly --threshold=1
[ "$status" -eq 0 ] && grep -q ' 6 unclear;' "$out"
report $? "and below the noise"
compare base worse --threshold 40
expect "a threshold of 40 %: 0" 0
compare base noisy
expect "medians apart, but samples that overlap: 0" 0
says "that is unclear" '8 threads, coalescing: rate .* unclear$'
compare three three-worse
expect "three pairs far apart: 1" 1
compare three three-close
expect "three pairs, ranges close together: 0" 0
says "that is unclear, too" ': 0 better, 0 worse, 18 the same, 6 unclear'
compare one one-worse
expect "one pair says nothing: 0" 0
says "and why" 'unclear, fewer than 3 pairs$'
compare base fewer
expect "a bench that is missing is no change: 0" 0
says "but it is said" '8 threads, coalescing +in the old file only$'
compare fewer base
says "on either side" '3 in the new one only$'
compare base skipped
[ "$status" -eq 0 ] && grep -q 'in the old file only: it is not installed' "$out"
report $? "and why it was not measured"
compare base failed
expect "runs that fail now: 1" 1
says "are worse" 'now runs failed or were not served: worse'
compare base base --all
says "--all shows what is the same" '8 threads, coalescing: CPU .* same$'
compare base noisy
grep -q 'the new run was noisy' "$out" && grep -q 'load average' "$out"
report $? "noise is said"

results one-side --bench cost
results one-side-better --bench cost cost=3.0
compare one-side one-side
expect "one side alone, the same: 0" 0
compare one-side one-side-better
expect "one side alone, other values: 1" 1
says "a rate that rose is better" 'alone: rate +2\.00 M/s +3\.00 M/s +1\.50x .* better$'
says "and so is a time that fell" 'alone: CPU .* +500 ns +333 ns +1\.50x .* better$'

compare base other
expect "nothing in common: 2" 2
printf '{"machine": {}, "results": [' >"$scratch/cut.json"
compare base cut
[ "$status" -eq 2 ] && grep -q 'cut.json: no JSON: line 1' "$err"
report $? "broken JSON: 2, with the file and the line"
for text in '' '{' '[1,]' '{"a" 1}' '"\q"' '"abc' 'nul' '1 2' '{"a":1,}' '"\ud800"' '-' '[[[' 'tru'; do
	printf '%s' "$text" >"$scratch/bad.json"
	compare bad base
	[ "$status" -eq 2 ] && grep -q 'bad.json: no JSON' "$err"
	report $? "not JSON: $text"
done
printf '%0100d' 0 | sed 's/0/[/g' >"$scratch/bad.json"
compare bad base
[ "$status" -eq 2 ] && grep -q 'nested too deeply' "$err"
report $? "a hundred brackets: 2"
for text in '[]' '{}' '{"machine":{},"results":{}}' '{"machine":{},"results":[{}]}' \
	'{"machine":{},"results":[{"bench":"a","configuration":"b"}]}' \
	'{"machine":{},"results":[{"bench":"a","configuration":"b","metrics":[{}]}]}' \
	'{"machine":{},"results":[{"bench":1,"configuration":"b","metrics":[]}]}'; do
	printf '%s' "$text" >"$scratch/bad.json"
	compare base bad
	[ "$status" -eq 2 ] && grep -q 'no results' "$err"
	report $? "no results: $text"
done
compare base missing
expect "a file that is not there: 2" 2
call "$pollux" bench compare "$scratch/base.json"
expect "one file: 2" 2
compare base base --no-such-option
expect "an unknown option: 2" 2
for bad in x -1 5%; do
	compare base base "--threshold=$bad"
	expect "--threshold=$bad: 2" 2
done
call "$pollux" bench compare --help
[ "$status" -eq 0 ] && grep -q '^Usage: pollux bench compare' "$out"
report $? "compare --help"

finish
