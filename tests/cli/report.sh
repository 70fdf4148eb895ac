#!/bin/sh
# SPDX-License-Identifier: MIT
#
# report.sh POLLUX - tests of the reports of `pollux bench`; says TAP. How they look is not tested.
set -u

here=$(dirname "$0")
pollux=$(realpath "$1") || exit 1
. "$here/tap.sh"

cat >"$scratch/look.py" <<'END'
"""look.py FOLDER BENCH...: the page is well-formed, has all of these and needs nothing else."""
import re
import sys
import xml.etree.ElementTree as xml

folder, benches = sys.argv[1], sys.argv[2:]
page = open(folder + "/index.html").read()
text = open(folder + "/report.md").read()
assert page.startswith("<!DOCTYPE html>\n")
root = xml.fromstring(page[len("<!DOCTYPE html>"):])

for word in "http:", "https:", "//", "url(", "@import", "<script", "<link", "<img", "src=":
    assert word not in page, word
for word in "nan", "inf", "-nan", "(null)":
    assert not re.search(r'[" >(,]%s[" <,)]' % re.escape(word), page), word
    assert not re.search(r"[| (]%s[ |,)]" % re.escape(word), text), word

ids = [e.get("id") for e in root.iter() if e.get("id")]
assert len(ids) == len(set(ids)), ids
for e in root.iter("a"):
    assert e.get("href")[0] == "#" and e.get("href")[1:] in ids, e.get("href")
for b in benches:
    assert b in ids, b
    assert "\n## %s\n" % b in text, b

numbers = re.compile(r"-?\d+(\.\d+)?$")
for svg in root.iter("svg"):
    x, y, width, height = map(float, svg.get("viewBox").split())
    for e in svg.iter():
        for name in "x", "x1", "x2", "cx":
            v = e.get(name)
            assert v is None or numbers.match(v) and -1 <= float(v) <= width + 1, (e.tag, v)
        for name in "y", "y1", "y2", "cy":
            v = e.get(name)
            assert v is None or numbers.match(v) and -1 <= float(v) <= height + 1, (e.tag, v)
        assert e.tag != "rect" or float(e.get("width")) > 0
        for pair in (e.get("points") or "").split():
            a, b = map(float, pair.split(","))
            assert 0 <= a <= width and 0 <= b <= height, pair
panels = [e for e in root.iter("figure")]
assert len(panels) >= len(benches)
assert all(f.find("svg") is not None for f in panels)

width = None
for line in text.splitlines():
    if line.startswith("|"):
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert width in (None, cells), line
        width = cells
    else:
        width = None
END

benches=$("$pollux" bench --help | awk '/WHAT is one/ { on = 1; next } on && !/^  / { on = 0 }
	on && $1 != "all" { print $1 }')
[ "$(echo "$benches" | wc -w)" -ge 10 ]
report $? "the help lists the benches"
set --
for b in $benches; do
	set -- "$@" --bench "$b"
done
python3 "$here/results.py" "$scratch/all.json" "$@" 'servers?' 'aio!' events~2.2 || exit 1
call "$pollux" bench report "$scratch/all.json" "$scratch/all"
expect "a report of constructed results" 0
# shellcheck disable=SC2086
python3 "$scratch/look.py" "$scratch/all" $benches 2>"$err"
report $? "it is well-formed, names every bench, and needs nothing else"
grep -q 'not measured: it is not installed\|<td>it is not installed' "$scratch/all/index.html"
report $? "what was skipped is said"
grep -q '2 runs failed: left out' "$scratch/all/index.html" &&
	grep -q '2 runs failed: left out' "$scratch/all/report.md"
report $? "and what failed"
grep -q 'CPU &lt;&amp;&gt; &quot;quoted&quot;' "$scratch/all/index.html"
report $? "text is escaped"
grep -q 'This run was noisy' "$scratch/all/index.html" &&
	grep -q 'load average at the start was 3.00' "$scratch/all/report.md"
report $? "a noisy run says so"
for b in $benches; do
	sed -n "/<h2 id=\"$b\"/,/<\/section>/p" "$scratch/all/index.html" |
		grep -q "<code>pollux bench $b --pairs=5</code>" "$scratch/all/index.html" || echo "$b"
done >"$out"
[ ! -s "$out" ]
report $? "every bench says how it is measured again"
for figure in 13223 43.3 103.336 22.402 220000 14.50 13787 58892; do
	grep -q "$figure" "$scratch/all/index.html" && grep -q "$figure" "$scratch/all/report.md" ||
		echo "$figure"
done >"$out"
[ ! -s "$out" ]
report $? "the published figures are there"

cat >"$scratch/lines.py" <<'END'
"""Results whose labels differ in a number alone are points of one line over what that counts."""
import re
import sys
page = open(sys.argv[1]).read()
for bench, family, counted, x in (("events", "coalescing", "threads", ("8", "16")),
                                  ("watches", "native", "watches", ("1", "1000")),
                                  ("teardown", "TCP socket", "processes", ("1", "10"))):
    section = page[page.index('<h2 id="%s">' % bench):]
    section = section[:section.index("</section>")]
    panel = section[section.index("<figcaption>%s: rate" % family):]
    panel = panel[:panel.index("</figure>")]
    assert ">%s</text>" % counted in panel, (bench, panel)
    assert all(">%s</text>" % v in panel for v in x), (bench, panel)
    lines = re.findall(r'points="([^"]*)"', panel)
    assert [len(points.split()) for points in lines] == [2, 2], (bench, lines)
END
python3 "$scratch/lines.py" "$scratch/all/index.html" 2>"$err"
report $? "what is counted makes a line, also where there is one of it"

python3 "$here/results.py" "$scratch/quiet.json" quiet
python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))
said["results"][0]["remark"] = "each is watched by <6> epolls"
json.dump(said, open(sys.argv[2], "w"))' "$scratch/quiet.json" "$scratch/remark.json"
"$pollux" bench report "$scratch/remark.json" "$scratch/remark" &&
	grep -q '<td>each is watched by &lt;6&gt; epolls' "$scratch/remark/index.html" &&
	grep -q 'each is watched by' "$scratch/remark/report.md"
report $? "what has to be known of a result stands below it"
call "$pollux" bench report "$scratch/quiet.json" "$scratch/quiet"
[ "$status" -eq 0 ] && grep -q 'this run was not noisy' "$scratch/quiet/index.html"
report $? "and a calm one does not"
python3 "$scratch/look.py" "$scratch/quiet" events ready 2>"$err"
report $? "a report of some benches alone"
! grep -q 103.336 "$scratch/quiet/index.html" && grep -q 13223 "$scratch/quiet/index.html" &&
	[ "$(grep -c 'Not among what was measured' "$scratch/quiet/report.md")" -eq 3 ]
report $? "has the published figures of those alone"
python3 "$here/results.py" "$scratch/wild.json" quiet events~1000 || exit 1
call "$pollux" bench report "$scratch/wild.json" "$scratch/wild"
python3 "$scratch/look.py" "$scratch/wild" events ready 2>"$err"
report $? "charts hold values that are far apart"
grep -q '4 of 6\|3 of 6' "$scratch/wild/report.md"
report $? "and many noisy results make a noisy run"

# What stands in the file is text, whatever it looks like.
python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))
bad = "<script>alert(1)</script>\n# <img src=x> \\<b> &amp; [a](b) `x`"
def marked(value):
    if isinstance(value, dict):
        return {k: marked(v) if k not in ("unit", "tool", "status", "served", "preload") else v
                for k, v in value.items()}
    if isinstance(value, list):
        return [marked(v) for v in value]
    return value + bad if isinstance(value, str) else value
for top in said:
    if top not in ("results", "benches"):
        said[top] = marked(said[top])
for b in said.get("benches", []):
    for k in b:
        if k != "name":
            b[k] = marked(b[k])
said["results"][0]["remark"] = bad
json.dump(said, open(sys.argv[2], "w"))' "$scratch/quiet.json" "$scratch/html.json"
call "$pollux" bench report "$scratch/html.json" "$scratch/html"
expect "a report of results that look like HTML" 0
cat >"$scratch/text.py" <<'END'
"""No tag, entity, link or heading comes out of the text."""
import re
import sys
text = open(sys.argv[1]).read()
assert "alert" in text
code = re.compile(r"(`+)(?!`)(?: .*? |.*?)(?<!`)\1(?!`)", re.S)
plain = code.sub("", re.sub(r"\\.", "", text))
assert not re.search(r"[<&]", plain), re.search(r".*[<&].*", plain).group()
assert "](" not in plain
assert not re.search(r"^# <", text, re.M) and not re.search(r"^# .{0,3}img", plain, re.M)
END
python3 "$scratch/text.py" "$scratch/html/report.md" 2>"$err"
report $? "none of it is mark-up there"

# A text with many escapes is read in one go: it took minutes.
python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))
said["note"] = "\\" * 2000000 + "x"
said["more"] = ["\"\n" * 2000] * 200
json.dump(said, open(sys.argv[2], "w"))' "$scratch/quiet.json" "$scratch/escapes.json"
call timeout 20 "$pollux" bench report "$scratch/escapes.json" "$scratch/escapes"
expect "texts with many escapes" 0
cmp -s "$scratch/quiet/report.md" "$scratch/escapes/report.md"
report $? "change nothing"

# The real thing, as short as it can be.
call "$pollux" bench ready aio-lookup --quick --pairs 2 --threads 2 --events 300 --warm-up 0 \
	--json "$scratch/real.json" --report "$scratch/deep/er"
expect "a bench with a report" 0
python3 "$scratch/look.py" "$scratch/deep/er" ready aio-lookup 2>"$err"
report $? "the report is well-formed"
cmp -s "$scratch/real.json" "$scratch/deep/er/report.json"
report $? "its JSON file is that of --json"
cat >"$scratch/said.py" <<'END'
import json, sys
said = json.load(open(sys.argv[1]))
assert said["command"].startswith("pollux bench ready aio-lookup --quick"), said["command"]
assert {b["name"] for b in said["benches"]} == {"ready", "aio-lookup"}
for b in said["benches"]:
    assert b["command"].startswith("pollux bench %s --quick --pairs=2" % b["name"]), b
    assert " --threads=2 --events=300 --warm-up=0 " in b["command"], b
for share in "others_share", "steal_share":
    assert 0 <= said["machine"][share] <= 1, share
    assert all(0 <= r[share] <= 1.5 for r in said["results"] if r[share] is not None), share
for r in said["results"]:
    keys = [s["key"] for s in r["sides"]]
    assert all(k in r for k in keys), keys
    for m in r["metrics"]:
        for k in keys[:-1]:
            low, high = m[k + "_ratio_low"], m[k + "_ratio_high"]
            assert m[k + "_ratio_min"] <= low <= high <= m[k + "_ratio_max"], m
END
python3 "$scratch/said.py" "$scratch/real.json" 2>"$err"
report $? "which says how it was asked for, and what disturbed it"
call "$pollux" bench compare "$scratch/real.json" "$scratch/deep/er/report.json"
expect "and compares with itself" 0

: >"$scratch/plain"
call "$pollux" bench ready --quick --pairs 1 --report "$scratch/plain/x"
expect "a folder that cannot be made: 1, at once" 1
call "$pollux" bench report "$scratch/quiet.json" "$scratch/plain/x"
expect "also from a file" 1
echo '{' >"$scratch/bad.json"
call "$pollux" bench report "$scratch/bad.json" "$scratch/bad"
[ "$status" -eq 2 ] && grep -q 'bad.json: no JSON' "$err" && [ ! -e "$scratch/bad" ]
report $? "a file that is no JSON: 2"
call "$pollux" bench report "$scratch/quiet.json"
expect "no folder: 2" 2
call "$pollux" bench report --no-such-option a b
expect "an unknown option: 2" 2
call "$pollux" bench report --help
[ "$status" -eq 0 ] && grep -q '^Usage: pollux bench report' "$out"
report $? "report --help"

finish
