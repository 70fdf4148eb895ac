#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench.sh POLLUX - tests of `pollux bench`; says TAP. Nothing is said about speed.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/tap.sh"

json=$scratch/result.json
call "$pollux" bench events --quick --pairs 1 --threads 2 --json "$json"
expect "a quick bench ends well" 0
[ "$(grep -Ec '^ +2 threads, .* [0-9.]+x +\[[0-9.]+\.\.[0-9.]+\]' "$out")" -ge 2 ]
report $? "it shows a ratio for each configuration"
ok "its file is JSON" python3 -m json.tool "$json"
cat >"$scratch/look.py" <<'END'
import json, math, sys
said = json.load(open(sys.argv[1]))
assert said["pairs"] == 1 and said["quick"] is True
assert said["machine"]["cpus"] >= 1
results = said["results"]
assert len(results) >= 2
for r in results:
    assert r["bench"] == "events" and r["configuration"].startswith("2 threads"), r
    assert r["failed"] == 0 and r["not_served"] == 0, r
    assert r["metrics"], r
    for m in r["metrics"]:
        ratio = m["ratio_median"]
        assert math.isfinite(ratio) and ratio > 0, m
        assert m["ratio_min"] <= ratio <= m["ratio_max"], m
        assert math.isclose(ratio, m["pollux_median"] / m["kernel_median"], rel_tol=1e-6), m
    for side in "kernel", "pollux":
        assert [run["ok"] for run in r[side]["runs"]] == [True], r
        preload = "preload=%d served=%d" % ((side == "pollux",) * 2)
        assert all(preload in run["output"] for run in r[side]["runs"]), r
END
python3 "$scratch/look.py" "$json" 2>"$err"
report $? "both sides ran, each on what it measures"

call "$pollux" bench aio-lookup --quick --pairs 2 --events 300 --json "$json"
expect "a bench with three sides ends well" 0
cat >"$scratch/look3.py" <<'END'
import json, math, sys
r, = json.load(open(sys.argv[1]))["results"]
assert r["failed"] == 0 and r["not_served"] == 0, r
for side in "list", "radix_tree", "table":
    assert [run["ok"] for run in r[side]["runs"]] == [True, True], r
for m in r["metrics"]:
    for side in "list", "radix_tree":
        ratio = m[side + "_ratio_median"]
        assert math.isfinite(ratio) and ratio > 0, m
        assert m[side + "_ratio_min"] <= ratio <= m[side + "_ratio_max"], m
        assert m[side + "_median"] > 0 and m["table_median"] > 0, m
END
python3 "$scratch/look3.py" "$json" 2>"$err"
report $? "the last of the sides is compared with each of the others"

call "$pollux" bench ready --quick --pairs 1 --threads 2 --events 1000 --json "$json"
expect "a bench with four sides ends well" 0
grep -q '"lockfree_ratio_median"' "$json"
report $? "and each of the older ready lists has its ratio"

# fio may be missing; then that is said.
call "$pollux" bench aio --quick --pairs 1 --events 500
expect "a quick bench of AIO ends well" 0
grep -Eq '1 KiB reads, one at a time: rate .* [0-9.]+x +\[' "$out"
report $? "it shows what single reads cost"

call "$pollux" bench events --quick --pairs 1 --threads 1 --events 1000 --json "$scratch/no/file"
[ "$status" -ne 0 ] && [ -s "$err" ]
report $? "a file that cannot be written is no success"
POLLUX_PRELOAD=$scratch/missing.so "$pollux" bench events --quick --pairs 1 --threads 1 \
	--events 1000 >"$out" 2>"$err" </dev/null
status=$?
expect "a bench that does not run on Pollux is no success" 1

call "$pollux" bench --help
[ "$status" -eq 0 ] && grep -q '^Usage: pollux bench' "$out"
report $? "bench --help"
call "$pollux" bench
expect "bench of nothing: 2" 2
call "$pollux" bench no-such-bench
expect "an unknown bench: 2" 2
for bad in --no-such-option --pairs=0 --pairs=x --threads= --threads=0 --events=-1; do
	call "$pollux" bench events --quick "$bad"
	expect "bench with $bad: 2" 2
done

finish
