#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench.sh POLLUX - tests of `pollux bench`; says TAP. Nothing is said about speed.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/tap.sh"

json=$scratch/result.json
call "$pollux" bench events --quick --pairs 1 --threads 2 --warm-up 0 --json "$json"
expect "a quick bench ends well" 0
[ "$(grep -Ec '^ +2 threads, .* [0-9.]+x +\[[0-9.]+\.\.[0-9.]+\]' "$out")" -ge 2 ]
report $? "it shows a ratio for each configuration"
ok "its file is JSON" python3 -m json.tool "$json"
cat >"$scratch/look.py" <<'END'
import json, math, sys
said = json.load(open(sys.argv[1]))
assert said["pairs"] == 1 and said["quick"] is True
assert said["machine"]["cpus"] >= 1
results = [r for r in said["results"] if r["bench"] != "ready"]
assert len(results) >= 2
# The older lists are measured, too, so that the table of 2019 can be put beside all of them.
lists, = (r for r in said["results"] if r["bench"] == "ready")
assert lists["configuration"].startswith("2 threads") and lists["failed"] == 0, lists
assert {"rate", "seconds"} == {m["name"] for m in lists["metrics"]}, lists
for r in results:
    assert r["bench"] == "events" and r["configuration"].startswith("2 threads"), r
    assert r["failed"] == 0 and r["not_served"] == 0, r
    assert r["metrics"], r
    for m in r["metrics"]:
        ratio = m["ratio_median"]
        assert math.isfinite(ratio) and ratio > 0, m
        assert m["ratio_min"] <= ratio <= m["ratio_max"], m
        better = m["pollux_median"] / m["kernel_median"]
        assert math.isclose(ratio, 1 / better if m["unit"] == "s" else better, rel_tol=1e-6), m
    for side in "kernel", "pollux":
        assert [run["ok"] for run in r[side]["runs"]] == [True], r
        preload = "preload=%d served=%d" % ((side == "pollux",) * 2)
        assert all(preload in run["output"] for run in r[side]["runs"]), r
END
python3 "$scratch/look.py" "$json" 2>"$err"
report $? "both sides ran, each on what it measures"

call "$pollux" bench aio-lookup --quick --pairs 2 --warm-up 0 --events 300 --json "$json"
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

call "$pollux" bench ready --quick --pairs 1 --threads 2 --warm-up 0 --events 1000 --json "$json"
expect "a bench with four sides ends well" 0
grep -q '"lockfree_ratio_median"' "$json"
report $? "and each of the older ready lists has its ratio"

# libuv may be missing, too.
call "$pollux" bench libuv --quick --pairs 1 --warm-up 0 --events 1000
if grep -q 'not measured: libuv is not installed' "$out"; then
	expect "a bench without libuv measures nothing" 1
else
	expect "a quick bench of libuv ends well" 0
fi

call "$pollux" bench teardown --quick --pairs 1 --warm-up 0 --threads 2 --events 500 --json "$json"
expect "a bench of removal ends well" 0
[ "$(grep -Ec '^ +2 .*: time .* s +[0-9.]+x +\[.*\] .*[-+][0-9.]+ %' "$out")" -eq 3 ]
report $? "it shows seconds and the difference in percent, by processes and in process"
cat >"$scratch/look-teardown.py" <<'END'
import json, math, sys
results = json.load(open(sys.argv[1]))["results"]
assert len(results) == 3, results
for r in results:
    assert r["failed"] == 0 and r["not_served"] == 0, r
    for side in set(("kernel", "pollux", "mutex", "refcount")) & set(r):
        assert [run["ok"] for run in r[side]["runs"]] == [True], r
    m = r["metrics"][0]
    assert m["unit"] == "s", m
    for bar in ("mutex_", "refcount_") if "mutex" in r else ("",):
        assert math.isclose(m[bar + "difference_percent"], 100 / m[bar + "ratio_median"] - 100,
                            abs_tol=1e-3), m
END
python3 "$scratch/look-teardown.py" "$json" 2>"$err"
report $? "and so does its file"

call "$pollux" bench scale --quick --pairs 1 --warm-up 0 --threads 2 --events 1000 --json "$json"
expect "a bench of sizes ends well" 0
for size in "1000 watches: ADD" "1000 watches, native: ADD" "2 waiters, 8 producers" \
	"2 threads, 1 waiter"; do
	grep -Eq "^ +$size +[0-9.]+ ns +[0-9.]+ ns +[0-9.]+x" "$out"
	report $? "it shows $size"
done

# nginx, wrk and perf may be missing; then that is said.
call "$pollux" bench nginx --quick --pairs 1 --warm-up 0
if grep -q 'not measured: .* is not installed' "$out"; then
	skip "one request per connection" "nginx or wrk is not installed"
else
	expect "one request per connection is served" 0
	grep -Eq '^ +in removal +[0-9.-]+ ' "$out"
	report $? "it shows the share of removal, or that there is none to show"
fi

call "$pollux" bench timers --quick --pairs 1 --warm-up 0 --events 1000 --json "$json"
expect "a quick bench of timers ends well" 0
[ "$(grep -c '"ratio_median"' "$json")" -eq 3 ]
report $? "it has the time of each of three ways"

call "$pollux" bench startup --quick --pairs 1 --warm-up 0 --events 5 --json "$json"
expect "a quick bench of children ends well" 0
[ "$(grep -c '"ratio_median"' "$json")" -eq 12 ]
report $? "it has the time and the CPU time of each of six ways"

call "$pollux" bench removal --quick --pairs 1 --warm-up 0 --events 50 --json "$json"
expect "a bench of removal from the list ends well" 0

call "$pollux" bench inversion latency --quick --pairs 1 --warm-up 0 --events 4 --json "$json"
expect "a bench of delays ends well" 0
cat >"$scratch/look-delays.py" <<'END'
import json, sys
results = json.load(open(sys.argv[1]))["results"]
rows = {"inversion": 0, "latency": 0}
for r in results:
    if "skipped" in r:
        # Without the right to SCHED_FIFO nobody can be stopped just anywhere.
        assert r["configuration"] == "stopped anywhere", r
        continue
    rows[r["bench"]] += 1
    sides = ("spinlock", "pi", "rwlock", "lockfree", "pollux")
    for side in sides if r["bench"] == "inversion" else ("kernel", "pollux"):
        run, = r[side]["runs"]
        assert run["ok"], run
        assert sum(c["count"] for c in run["histogram"]) == 4, run
        starts = [c["from_ns"] for c in run["histogram"]]
        assert starts == sorted(starts), run
        if r["bench"] == "latency":
            assert 0 < run["p50_ns"] <= run["p99_ns"] <= run["p999_ns"] <= run["max_ns"], run
            assert starts[-1] <= run["max_ns"] <= 1.25 * starts[-1] + 8, run
            assert " clock_ns=" in run["output"], run
        else:
            assert 0 < run["p50_us"] <= run["p99_us"] <= run["max_us"], run
            # Five milliseconds long the thread that was stopped does not run. Who waits for it
            # may come late himself, but not each time. (Without real-time priorities he may.)
            if (side in ("spinlock", "rwlock") and "middle" in r["configuration"]
                    and " scheduler=fifo " in run["output"]):
                assert run["max_us"] > 2500, run
assert rows["inversion"] in (2, 3) and rows["latency"] == 4, rows
END
python3 "$scratch/look-delays.py" "$json" 2>"$err"
report $? "with percentiles that fit the histogram, and what is known to wait has waited"
call "$pollux" bench primitives --quick --pairs 1 --warm-up 0 --threads 2 --json "$json"
expect "a bench of the machine's steps ends well" 0
python3 -c 'import json, sys
for r in json.load(open(sys.argv[1]))["results"]:
    for run in r["machine"]["runs"] if "skipped" not in r else ():
        assert run["ok"] and run["ns"] > 0, r' "$json" 2>"$err"
report $? "each step takes some time"

# What the cost model says about atomic steps is what is counted. Half of it needs two CPUs.
cat >"$scratch/look-cost.py" <<'END'
import json, re, sys
said = {}
for line in open(sys.argv[2]):
    row = re.match(r"\| `([-a-z]+)` +\| ([0-9]+) +\|", line)
    if row:
        said[row.group(1)] = int(row.group(2))
assert len(said) == 11, said
counted = {}
for r in json.load(open(sys.argv[1]))["results"]:
    if "skipped" in r:
        continue
    run, = r["pollux"]["runs"]
    assert run["ok"], run
    if run.get("locked") is not None:
        counted[re.search(r" path=(\S+)", run["output"]).group(1)] = run["locked"]
# A collection has two or three of its own, whatever the number of items.
# What comes and goes is taken from packs, and given back to them, many at a time.
more = {"make-add-close": 0.5}
wrong = {p: n for p, n in counted.items() if not said[p] <= n <= said[p] + more.get(p, 0.08)}
assert not wrong, wrong
END
call "$pollux" bench cost --quick --pairs 1 --warm-up 0 --events 20 --json "$json"
expect "a bench of paths ends well" 0
python3 "$scratch/look-cost.py" "$json" "$here/../../docs/cost-model.md" 2>"$err"
report $? "and the cost model counts as many atomic steps"

call "$pollux" bench calls --quick --pairs 1 --warm-up 0 --events 5 --json "$json"
expect "a bench of single calls ends well" 0
cat >"$scratch/look-calls.py" <<'END'
import json, math, re, subprocess, sys
labels = {}
skipped = 0
for r in json.load(open(sys.argv[1]))["results"]:
    if "skipped" in r:
        # Older kernels do not have it.
        assert r["configuration"].startswith("close_range"), r
        skipped += 1
        continue
    assert r["bench"] == "calls" and r["failed"] == 0 and r["not_served"] == 0, r
    m, = r["metrics"]
    assert m["name"] == "ns" and m["unit"] == "ns", m
    assert math.isfinite(m["ratio_median"]) and m["ratio_median"] > 0, m
    program, option, name = r["kernel"]["command"][:3]
    assert option == "--call" and name not in labels, r
    labels[name] = r["configuration"]
assert len(set(labels.values())) == len(labels), labels
said = subprocess.run([program, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
known = re.findall(r"^ {16}(\S+)$", said, re.M)
assert len(known) == len(labels) + skipped >= 40, (known, labels)
END
python3 "$scratch/look-calls.py" "$json" 2>"$err"
report $? "each call that the program knows has a row with its ratio"

# What cannot be measured is skipped, and no failure: the table, the file and the report say why.
cat >"$scratch/look-skipped.py" <<'END'
import json, sys
results = json.load(open(sys.argv[1]))["results"]
why = sys.argv[2]
skipped = [r for r in results if r.get("skipped") == why]
assert len(skipped) >= int(sys.argv[3]), results
assert all(set(r) == {"bench", "configuration", "native", "skipped"} for r in skipped), skipped
assert not any(r.get("failed") for r in results), results
assert any("skipped" not in r for r in results), results
for name in "index.html", "report.md":
    # An underscore has a meaning in Markdown.
    assert why in open(sys.argv[4] + "/" + name).read().replace("\\_", "_"), name
END

# skipped NAME WHY N COMMAND...: the command skips N rows or more, for this reason.
skipped()
{
	name=$1
	why=$2
	least=$3
	shift 3
	call "$@" --quick --pairs 1 --warm-up 0 --json "$json" --report "$scratch/skipped"
	expect "$name ends well" 0
	grep -q " not measured: $why$" "$out" && ! grep -q ' failed\.' "$out"
	report $? "$name: the table says what is skipped, and nothing has failed"
	python3 "$scratch/look-skipped.py" "$json" "$why" "$least" "$scratch/skipped" 2>"$err"
	report $? "$name: so do the file and the report"
}

if cpu=$(taskset -cp $$ 2>"$err" | sed -n 's/.*: *\([0-9][0-9]*\).*/\1/p') && [ -n "$cpu" ]; then
	skipped "a bench on one CPU" "there is one CPU" 13 \
		taskset -c "$cpu" "$pollux" bench primitives cost --events 20
else
	skip "a bench on one CPU" "taskset is not there"
fi
# Whoever has the right gives it up.
without="setpriv --bounding-set -sys_nice --inh-caps -sys_nice prlimit --rtprio=0:0"
[ "$(id -u)" -eq 0 ] || without="prlimit --rtprio=0:0"
if $without true 2>"$err"; then
	# shellcheck disable=SC2086
	skipped "a bench without real-time priorities" "it takes the right to use SCHED_FIFO" 1 \
		$without "$pollux" bench inversion --events 4
else
	skip "a bench without real-time priorities" "the right to them cannot be given up"
fi

# fio may be missing; then that is said.
call "$pollux" bench aio --quick --pairs 1 --warm-up 0 --events 500
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
for bad in --no-such-option --pairs=0 --pairs=x --warm-up=x --threads= --threads=0 --events=-1; do
	call "$pollux" bench events --quick "$bad"
	expect "bench with $bad: 2" 2
done

finish
