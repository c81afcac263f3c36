#!/bin/sh
# timeline.sh - what bench/timeline.py draws of a trace: well-formed XML, one rectangle for each phase, where it belongs.
#
#     timeline.sh LAB TIMELINE.PY EXPECT.SH        LAB: lab00_traced
#
# Exit 77 without python3, and where the lab skips.
set -u
lab=$1 timeline=$2 expect=$3
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 7))' 2>/dev/null || { echo "no Python 3.7 here: timelines are not drawn"; exit 77; }
"$lab" --trace "$dir/trace.json" >/dev/null
status=$?
[ $status -ne 77 ] || exit 77
[ $status -eq 0 ] || fail "the lab's exit code is $status"
draw() { python3 "$timeline" "$@"; }
refuse() { # refuse SAYS ARGUMENT...
    says=$1
    shift
    try 2 - "$says" python3 "$timeline" "$@"
}

cat >"$dir/check.py" <<'PYTHON'
"""check.py SVG TRACE PID,... [FROM TO]: every phase of these blocks that lies between the times has its rectangle, and in
its lane, as long in proportion as it lasts; no rectangle more. Colours are those of the legend, black and white text is
not."""
import json, re, sys
import xml.etree.ElementTree as xml
svg, trace = sys.argv[1:3]
pids = {int(pid) for pid in sys.argv[3].split(",")}
root = xml.parse(svg).getroot()
space = "{http://www.w3.org/2000/svg}"
assert root.tag == space + "svg", root.tag
events = [e for e in json.load(open(trace))["traceEvents"] if e["ph"] == "X" and e["pid"] in pids]
begin = float(sys.argv[4]) if len(sys.argv) > 4 else min(e["ts"] for e in events)
end = float(sys.argv[5]) if len(sys.argv) > 5 else max(e["ts"] + e["dur"] for e in events)
events = [e for e in events if e["ts"] < end and e["ts"] + e["dur"] > begin]
rectangles = [r for r in root.iter(space + "rect") if r.get("class") == "phase"]
assert len(rectangles) == len(events) > 0, (len(rectangles), len(events))
lanes = {}
keys = {r.get("fill") for r in root.iter(space + "rect") if r.get("class") == "key"}
left = min(float(line.get("x1")) for line in root.iter(space + "line") if line.get("class") == "lane")
right = max(float(line.get("x2")) for line in root.iter(space + "line") if line.get("class") == "lane")
for event, r in zip(events, rectangles):
    assert r.find(space + "title").text.startswith(event["name"] + ": "), (event, r.find(space + "title").text)
    assert r.get("fill") in keys, r.get("fill")
    assert lanes.setdefault((event["pid"], event["tid"]), r.get("y")) == r.get("y"), event
    scale = (right - left) / (end - begin)
    x = left + (max(event["ts"], begin) - begin) * scale
    wide = (min(event["ts"] + event["dur"], end) - max(event["ts"], begin)) * scale
    assert abs(float(r.get("x")) - x) < 0.1, (event, r.get("x"), x)
    assert abs(float(r.get("width")) - max(wide, 0.25)) < 0.1, (event, r.get("width"), wide)
    assert float(r.get("x")) + float(r.get("width")) <= float(root.get("width")), event
assert len(set(lanes.values())) == len(lanes), lanes  # a lane each
bottom = max(float(t.get("y")) for t in root.iter(space + "text"))
assert bottom < float(root.get("height")), bottom
PYTHON
check() { python3 "$dir/check.py" "$@" || fail "the picture is not right: $*"; }

draw "$dir/trace.json" -o "$dir/all.svg" || fail "timeline.py failed"
check "$dir/all.svg" "$dir/trace.json" 0,1
draw "$dir/trace.json" --block 1 --width 640 >"$dir/one.svg" || fail "timeline.py --block failed"
check "$dir/one.svg" "$dir/trace.json" 1
draw "$dir/trace.json" --kernel traced --block 0 -o "$dir/kernel.svg" || fail "timeline.py --kernel failed"
check "$dir/kernel.svg" "$dir/trace.json" 0
# A window that begins and ends within a phase: the middle half of what there is.
window=$(python3 - "$dir/trace.json" <<'PYTHON'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
last = max(e["ts"] + e["dur"] for e in events)
print(last / 4, last * 3 / 4)
PYTHON
)
draw "$dir/trace.json" --from "${window% *}" --to "${window#* }" -o "$dir/part.svg" || fail "timeline.py --from --to failed"
check "$dir/part.svg" "$dir/trace.json" 0,1 "${window% *}" "${window#* }"
try 0 'producer' - cat "$dir/all.svg"
try 0 'prefers-color-scheme:dark' - cat "$dir/all.svg"

# Names with what XML must not hold, a track that lost phases, events of other kinds.
cat >"$dir/odd.json" <<'JSON'
{"traceEvents": [{"ph": "i", "ts": 3}, {"name": "process_name", "ph": "M", "pid": 4, "args": {"name": "a<b> & \"c\""}},
 {"name": "wait <1>", "ph": "X", "pid": 4, "tid": 2, "ts": 0.5, "dur": 2, "args": {"kernel": "k<1>"}},
 {"name": "a & b", "ph": "X", "pid": 4, "tid": 2, "ts": 2.5, "dur": 0, "args": {"kernel": "k<1>"}}],
 "otherData": {"lab": "lab<>", "unit": "us", "kernels": [{"kernel": "k<1>", "dropped": 12}]}}
JSON
draw "$dir/odd.json" -o "$dir/odd.svg" --from 0 --to 4 || fail "timeline.py failed at odd names"
check "$dir/odd.svg" "$dir/odd.json" 4 0 4
try 0 '12 more phases found no place' - cat "$dir/odd.svg"

# What it cannot make sense of.
refuse '^/no/such/file cannot be read' /no/such/file
echo '{"traceEvents": [' >"$dir/bad.json"
refuse 'bad.json is not JSON' "$dir/bad.json"
echo '[]' >"$dir/bad.json"
refuse 'bad.json is no trace' "$dir/bad.json"
echo '{"traceEvents": []}' >"$dir/bad.json"
refuse 'bad.json holds no phases' "$dir/bad.json"
echo '{"traceEvents": [{"name": "a", "ph": "X", "pid": 0, "tid": 0, "ts": 1}]}' >"$dir/bad.json"
refuse 'event 0 lacks a time or a duration' "$dir/bad.json"
echo '{"traceEvents": [{"ph": "X", "pid": "0", "ts": 1, "dur": 2}]}' >"$dir/bad.json"
refuse 'event 0 lacks a name' "$dir/bad.json"
refuse 'has no kernel nobody, but traced' "$dir/trace.json" --kernel nobody
refuse 'has no block 9, only blocks 0 to 1' "$dir/trace.json" --block 9
refuse 'has no block -1' "$dir/trace.json" --block -1
refuse 'no time from 5 to 5' "$dir/trace.json" --from 5 --to 5
refuse 'Nothing happens from 100000000 to' "$dir/trace.json" --from 100000000 --to 100000001
refuse 'width 100 is too narrow' "$dir/trace.json" --width 100
refuse 'invalid' "$dir/trace.json" --from x
refuse 'invalid' "$dir/trace.json" --to nan
refuse 'Unrecognized' "$dir/trace.json" --colour
refuse 'trace' --block 1
refuse '^/no/such/folder/a.svg cannot be written' "$dir/trace.json" -o /no/such/folder/a.svg

finish
