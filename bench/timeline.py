#!/usr/bin/env python3
"""Draws what a lab's --trace FILE wrote: one lane for each role of a block (producer, consumer 0, ...), its phases in
colours, waiting in grey, as SVG.

    build/cpu/lab07_fa3_hopper --kernel pingpong --trace trace.json
    python3 bench/timeline.py trace.json -o timeline.svg
    python3 bench/timeline.py trace.json -o detail.svg --block 0 --from 20 --to 35

Times are microseconds, or the steps of the simulated device where the trace is from the cpu backend. Without --kernel
every traced kernel is drawn, without --block both blocks, without --from and --to all of them from their beginning to
their end. Needs Python 3 alone."""
import argparse
import json
import math
import os
import sys
from xml.sax.saxutils import escape, quoteattr

# Black text on them is readable, and they are on white and on black; where there are more phases, from the first again.
COLOURS = ["#e8a33d", "#5aa9e6", "#6cc070", "#e57373", "#b48ee0", "#4db6ac", "#d4c05a", "#e88bb5", "#8fa8b8", "#c49a7a"]
WAITS = ["#c4c8cc", "#a3a8ae", "#d8dbde", "#8b9198", "#b3b8bd", "#979ca3"]
LANE, GAP, HEAD, LEGEND, CHARACTER = 26, 6, 24, 20, 6.6  # pixels; a character is that wide at 11 px


class Refusal(Exception):
    """What is wrong, in one sentence."""


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def read_trace(path):
    """Returns (blocks, otherData): blocks[pid] = {name, kernel, number, lanes: {tid: name}, events: [event]}."""
    try:
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
    except OSError as why:
        raise Refusal(f"{path} cannot be read: {why.strerror}.")
    except (ValueError, RecursionError) as why:
        raise Refusal(f"{path} is not JSON: {why}.")
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise Refusal(f'{path} is no trace: it has no list "traceEvents".')
    blocks = {}
    for number, event in enumerate(events):
        kind = event.get("ph") if isinstance(event, dict) else None
        if kind not in ("M", "X"):
            continue
        pid, tid, arguments = event.get("pid"), event.get("tid", 0), event.get("args", {})
        name = event.get("name")
        if not (isinstance(pid, int) and isinstance(tid, int) and isinstance(arguments, dict) and isinstance(name, str)):
            raise Refusal(f"{path} is no trace: event {number} lacks a name, a pid or a tid.")
        block = blocks.setdefault(pid, {"name": f"block {pid}", "kernel": None, "lanes": {}, "events": []})
        if kind == "M":
            if name == "process_name":
                block["name"] = str(arguments.get("name"))
            elif name == "thread_name":
                block["lanes"][tid] = str(arguments.get("name"))
            continue
        if not (is_number(event.get("ts")) and is_number(event.get("dur")) and event["dur"] >= 0):
            raise Refusal(f"{path} is no trace: event {number} lacks a time or a duration.")
        block["lanes"].setdefault(tid, f"track {tid}")
        block["kernel"] = arguments.get("kernel")
        block["events"].append({"name": name, "tid": tid, "ts": event["ts"], "dur": event["dur"]})
    blocks = {pid: block for pid, block in sorted(blocks.items()) if block["events"]}
    if not blocks:
        raise Refusal(f"{path} holds no phases: nothing was traced.")
    seen = {}
    for block in blocks.values():  # the blocks of a kernel follow each other
        block["number"] = seen.get(block["kernel"], 0)
        seen[block["kernel"]] = block["number"] + 1
    other = trace.get("otherData")
    return blocks, other if isinstance(other, dict) else {}


def choose(blocks, kernel, number):
    kernels = list(dict.fromkeys(block["kernel"] for block in blocks.values()))
    if kernel is not None and kernel not in kernels:
        raise Refusal(f"the trace has no kernel {kernel}, but {', '.join(map(str, kernels))}.")
    chosen = [block for block in blocks.values() if kernel in (None, block["kernel"])]
    if number is not None:
        of_kernel = max(block["number"] for block in chosen)
        chosen = [block for block in chosen if block["number"] == number]
        if not chosen:
            raise Refusal(f"the trace has no block {number}, only {'block 0' if of_kernel == 0 else f'blocks 0 to {of_kernel}'}.")
    return chosen


def step_of(span, most):
    """A round distance between ticks of which at most `most` fit."""
    raw = span / max(most, 1)
    power = 10 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999999)


def number_text(x, step):
    text = f"{x:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
    return "0" if float(text) == 0 else text


def colours_of(blocks):
    """A colour for each phase, in the order in which they first occur."""
    names = dict.fromkeys(event["name"] for block in blocks for event in block["events"])
    colours, waits, others = {}, 0, 0
    for name in names:
        if name.lower().startswith("wait"):
            colours[name], waits = WAITS[waits % len(WAITS)], waits + 1
        else:
            colours[name], others = COLOURS[others % len(COLOURS)], others + 1
    return colours


def draw(blocks, colours, other, begin, end, width):
    unit = "us" if other.get("unit", "us") == "us" else str(other["unit"])
    first = min(event["ts"] for block in blocks for event in block["events"])
    last = max(event["ts"] + event["dur"] for block in blocks for event in block["events"])
    begin, end = first if begin is None else begin, last if end is None else end
    if not begin < end:
        raise Refusal(f"there is no time from {begin:.12g} to {end:.12g} {unit}.")
    shown = [[event for event in block["events"] if event["ts"] < end and event["ts"] + event["dur"] > begin]
             for block in blocks]
    if not any(shown):
        raise Refusal(f"nothing happens from {begin:.12g} to {end:.12g} {unit}; the trace goes from {first:.12g} to {last:.12g}.")
    used = {event["name"] for events in shown for event in events}
    colours = {name: colour for name, colour in colours.items() if name in used}

    left = 14 + CHARACTER * max(len(name) for block in blocks for name in block["lanes"].values())
    right = width - 12
    if right - left < 100:
        raise Refusal(f"--width {width} is too narrow; give at least {math.ceil(left + 112)}.")

    def x_of(time):
        return left + (min(max(time, begin), end) - begin) / (end - begin) * (right - left)

    out, y = [], 6
    title = " · ".join(str(other[key]) for key in ("lab", "device") if key in other)
    shape = other.get("shape")
    if isinstance(shape, dict):
        title += "".join(f" · {label} {shape[key]}" for key, label in
                         (("batch", "batch"), ("heads", "heads"), ("seqlen_q", "queries"), ("seqlen_k", "keys"),
                          ("head_dim", "head_dim"), ("dtype", "")) if key in shape)
        title += " · causal" if shape.get("causal") else ""
    if title:
        y += 14
        out.append(f'<text class="title" x="8" y="{y}">{escape(title.replace("  ", " "))}</text>')
        y += 10

    x, rows = 8.0, [[]]  # the legend, in as many rows as it takes
    for name in colours:
        wide = 18 + CHARACTER * len(name) + 16
        if x + wide > width and rows[-1]:
            x = 8.0
            rows.append([])
        rows[-1].append((x, name))
        x += wide
    for row in rows:
        for x, name in row:
            out.append(f'<rect class="key" x="{x:.1f}" y="{y}" width="12" height="12" fill="{colours[name]}"/>')
            out.append(f'<text x="{x + 17:.1f}" y="{y + 10}">{escape(name)}</text>')
        y += LEGEND

    top = y
    for block, events in zip(blocks, shown):
        y += HEAD
        out.append(f'<text class="block" x="8" y="{y - 7}">{escape(block["name"])}</text>')
        lane_y = {}
        for tid, name in sorted(block["lanes"].items()):
            lane_y[tid] = y
            out.append(f'<text x="{left - 6:.1f}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
            out.append(f'<line class="lane" x1="{left:.1f}" x2="{right:.1f}" y1="{y + LANE}" y2="{y + LANE}"/>')
            y += LANE + GAP
        for event in events:
            x, wide = x_of(event["ts"]), x_of(event["ts"] + event["dur"]) - x_of(event["ts"])
            tip = f'{event["name"]}: {event["dur"]:.9g} {unit} from {event["ts"]:.9g} on'
            out.append(f'<rect class="phase" x="{x:.2f}" y="{lane_y[event["tid"]]}" width="{max(wide, 0.25):.2f}" height="{LANE}" '
                       f'fill="{colours[event["name"]]}"><title>{escape(tip)}</title></rect>')
            if wide > CHARACTER * len(event["name"]) + 6:
                out.append(f'<text class="in" x="{x + wide / 2:.2f}" y="{lane_y[event["tid"]] + 17}" text-anchor="middle">'
                           f'{escape(event["name"])}</text>')
    bottom = y + 2

    step = step_of(end - begin, (right - left) / 80)
    tick = math.ceil(begin / step - 1e-9) * step
    while tick <= end + step * 1e-9:
        out.append(f'<line class="tick" x1="{x_of(tick):.1f}" x2="{x_of(tick):.1f}" y1="{top + 4}" y2="{bottom + 4}"/>')
        out.append(f'<text x="{x_of(tick):.1f}" y="{bottom + 17}" text-anchor="middle">{number_text(tick, step)}</text>')
        tick += step
    note = "µs" if unit == "us" else f"{unit} of the simulated device: who waits for whom, no measure of speed"
    out.append(f'<text x="{right:.1f}" y="{bottom + 33}" text-anchor="end">{escape(note)}</text>')
    for kernel in other.get("kernels", []):
        if isinstance(kernel, dict) and kernel.get("dropped") and kernel.get("kernel") in [b["kernel"] for b in blocks]:
            bottom += 14
            out.append(f'<text x="{left:.1f}" y="{bottom + 33}">{escape(str(kernel["kernel"]))}: '
                       f'{kernel["dropped"]:g} more phases found no place in the trace</text>')
    height = bottom + 42
    style = ("text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#24292f}"
             ".title,.block{font-weight:bold}.in{fill:#111}.lane,.tick{stroke:#8c959f;stroke-width:.5}"
             ".tick{stroke-dasharray:2 3}.phase{stroke:#fff;stroke-width:.4}"
             "@media (prefers-color-scheme:dark){text{fill:#d0d7de}.in{fill:#111}.phase{stroke:#0d1117}}")
    label = quoteattr(f"timeline of {', '.join(dict.fromkeys(str(block['kernel']) for block in blocks))}")
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'viewBox="0 0 {width} {height}" role="img" aria-label={label}>', f"<style>{style}</style>", *out,
                      "</svg>", ""])


class Parser(argparse.ArgumentParser):
    def error(self, message):  # one sentence, as from the labs
        print(f"{message[0].upper()}{message[1:]}; --help lists the options.", file=sys.stderr)
        sys.exit(2)


def number(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("trace", help="what --trace wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="the SVG (default: standard output)")
    parser.add_argument("--kernel", metavar="NAME", help="of this kernel alone")
    parser.add_argument("--block", type=int, metavar="N", help="of this block alone, counted for each kernel from 0")
    parser.add_argument("--from", dest="begin", type=number, metavar="T", help="in the trace's unit")
    parser.add_argument("--to", dest="end", type=number, metavar="T")
    parser.add_argument("--width", type=int, default=1000, metavar="PIXELS", help="default: 1000")
    o = parser.parse_args()
    try:
        blocks, other = read_trace(o.trace)
        # Of all of the trace, so that two pictures of it have the same.
        colours = colours_of(blocks.values())
        svg = draw(choose(blocks, o.kernel, o.block), colours, other, o.begin, o.end, o.width)
        if o.output:
            try:
                with open(o.output, "w", encoding="utf-8") as file:
                    file.write(svg)
            except OSError as why:
                raise Refusal(f"{o.output} cannot be written: {why.strerror}.")
        else:
            sys.stdout.reconfigure(encoding="utf-8")
            print(svg, end="", flush=True)
    except Refusal as why:
        text = str(why)
        print(text if text.startswith((o.trace, str(o.output))) else text[0].upper() + text[1:], file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
