#!/usr/bin/env python3
"""Draws the figures of the handouts, figures/*.svg, from what was measured and counted, bench/results/*.csv.

    python3 bench/figures.py                      all figures, each from the newest CSV of its kind
    python3 bench/figures.py --check              whether figures/ shows what its CSV files say (needs no matplotlib)
    python3 bench/figures.py --results DIR --output DIR [NAME...]      other folders, or some figures only

A kind of CSV is its name without the date: h200-decode-2026-11-30.csv. Where two of them timed the same kernel, the newer
one counts. An SVG names the files that it was drawn from and holds the SHA-256 of what it shows, so that --check can redo
that from these very files, whatever else has been measured since. A figure whose CSV is not there is left out, and said so.
Drawing needs matplotlib; the same version of it makes the same file to the byte.

Read by: bench/peers.py (forward, backward), bench/decode.py, ./lab ladder (on either backend) write them."""
import argparse
import hashlib
import json
import os
import re
import sys

import figure_data
from figure_data import Refusal

# Colours that the colour-blind tell apart (Okabe and Ito, 2008), one a lab; markers and lines differ besides, for print.
COLOURS = {"lab01": "#000000", "lab02": "#e69f00", "lab03": "#56b4e9", "lab04": "#009e73", "lab05": "#0072b2",
           "lab06": "#cc79a7", "lab07": "#d55e00", "lab08": "#8a6d00", "peer": "#666666", "line": "#444444"}
MARKERS = {"lab01": "osD", "lab02": "v^<", "lab03": "Dd", "lab04": "sXPph", "lab05": "^v<>", "lab06": "DvP8", "lab07": "*XPdhs<>",
           "lab08": "o^sD", "peer": "x+1", "line": "..."}
LINES = ["-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3))]
HATCHES = ["", "//", "\\\\", "xx", "--", "++"]


def style_of(series):
    """Colour, marker and line of a series, by its lab and its place among those of that lab."""
    lab, variant = series["lab"], series["variant"]
    return COLOURS[lab], MARKERS[lab][variant % len(MARKERS[lab])], LINES[variant % len(LINES)]


def plain(x):
    """A number on an axis: 64, 16K, 0.5, 2M."""
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if x >= size and x % size == 0:
            return f"{x // size:.0f}{unit}"
    return f"{x:g}"


def draw_series(axes, series):
    colour, marker, line = style_of(series)
    shown = series.get("shown", "both")  # points, line or both
    edge = colour if marker in "x+1" or series.get("hollow") else "white"
    axes.plot(series["x"], series["y"], label=series["label"], color=colour, linestyle="none" if shown == "points" else line,
              marker="none" if shown == "line" else marker, markersize=6, linewidth=1.5, markeredgecolor=edge,
              markerfacecolor="white" if series.get("hollow") else colour, markeredgewidth=0.4 if edge == "white" else 1.3)


def draw_lines(axes, panel):
    for series in panel["series"]:
        draw_series(axes, series)
    base = panel.get("base", 2)
    axes.set_xscale(panel.get("xscale", "linear"), **({"base": base} if panel.get("xscale") == "log" else {}))
    axes.set_yscale(panel.get("yscale", "linear"))
    if "ticks" in panel:
        axes.set_xticks(range(len(panel["ticks"])), panel["ticks"], fontsize=7)
    else:
        ticks = panel.get("at") or sorted({x for series in panel["series"] for x in series["x"]})
        axes.set_xticks(ticks, [plain(x) for x in ticks])
        axes.minorticks_off()
    if panel.get("yscale") != "log":
        axes.set_ylim(bottom=0)
    if "xlim" in panel:
        axes.set_xlim(*panel["xlim"])
        axes.set_ylim(*panel["ylim"])


def draw_bars(axes, panel):
    """From top to bottom in the order of the list, with the number beside each."""
    bars = panel["bars"]
    for at, bar in enumerate(bars):
        earlier = sum(1 for other in bars[:at] if other["lab"] == bar["lab"])
        face, edge = ("white", COLOURS["peer"]) if bar["lab"] == "peer" else (COLOURS[bar["lab"]], "white")
        axes.barh(-at, bar["value"], color=face, edgecolor=edge, hatch=HATCHES[earlier % len(HATCHES)], alpha=0.85, linewidth=0.6)
        axes.annotate(f" {bar['text']}", (bar["value"], -at), va="center", fontsize=8)
    axes.set_yticks([-at for at in range(len(bars))], [bar["label"] for bar in bars], fontsize=8)
    axes.set_xscale(panel.get("xscale", "linear"))
    axes.margins(x=0.14, y=0.02)


def draw(figure, path):
    """Writes the SVG of what figure_data.py made."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "flash-attention-labs", "svg.fonttype": "none", "font.size": 9, "hatch.linewidth": 0.6,
                                "font.family": ["DejaVu Sans"], "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6})
    from matplotlib import pyplot

    count = len(figure["panels"])
    columns = min(count, 2)
    rows = -(-count // columns)
    size, notes = figure.get("size", [4.6 * columns + 1.6, 3.6 * rows]), figure["notes"]
    height = size[1] + 0.6 + 0.16 * len(notes)
    drawing, grid = pyplot.subplots(rows, columns, figsize=(size[0], height), squeeze=False, facecolor="white")
    seen_of = {}
    for axes, panel in zip(grid.flat, figure["panels"]):
        if "bars" in panel:
            draw_bars(axes, panel)
        else:
            draw_lines(axes, panel)
        axes.set_axisbelow(True)
        axes.set_title(panel["title"], fontsize=9)
        axes.set_xlabel(panel["x"])
        axes.set_ylabel(panel.get("y", ""))
        for handle, label in zip(*axes.get_legend_handles_labels()):
            seen_of.setdefault(label, handle)
    for axes in list(grid.flat)[count:]:
        axes.set_visible(False)
    drawing.suptitle(figure["title"], fontsize=11, x=0.02, ha="left", y=1 - 0.1 / height, va="top")
    drawing.text(0.02, 0.08 / height, "\n".join(notes), fontsize=7, va="bottom", linespacing=1.4, color="#333333")
    right = 1.0
    if seen_of:
        drawing.legend(seen_of.values(), seen_of.keys(), loc="center right", fontsize=8, frameon=False, handlelength=3.2)
        right = 1 - (0.6 + 0.062 * max(map(len, seen_of))) / size[0]
    drawing.tight_layout(rect=(0, (0.12 + 0.16 * len(notes)) / height, right, 1 - 0.22 / height))
    drawing.savefig(path, format="svg", metadata={"Date": None, "Title": figure["title"], "Description": description(figure)})
    pyplot.close(drawing)


def description(figure):
    digest = hashlib.sha256(json.dumps(figure, sort_keys=True).encode()).hexdigest()
    return f"Drawn by bench/figures.py from {', '.join(figure['files'])}; data {digest}"


def check(name, results, folder):
    """Whether figures/NAME.svg shows what the files say that it names. Returns what is wrong, or nothing."""
    path = os.path.join(folder, name + ".svg")
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(r"Drawn by bench/figures\.py from ([^;<]*); data ([0-9a-f]{64})", file.read())
    except OSError as why:
        return f"{path} cannot be read: {why.strerror}"
    if not found:
        return f"{path} does not say what it was drawn from"
    files = found.group(1).split(", ")
    for file in files:
        if not os.path.exists(os.path.join(results, file)):
            return f"{path} was drawn from {file}, which is not in {results}"
    figure = figure_data.FIGURES[name](figure_data.read_results(results, files))
    if figure is None or description(figure) != found.group(0):
        return f"{path} does not show what {' and '.join(files)} say: draw it again (python3 bench/figures.py)"
    return None


def check_all(names, results, folder):
    there = [name for name in names if os.path.exists(os.path.join(folder, name + ".svg"))]
    if not there:
        raise Refusal(f"{folder} has none of the figures {', '.join(names)}.")
    wrong = [why for why in (check(name, results, folder) for name in there) if why]
    for why in wrong:
        print(why)
    print(f"{len(there)} figures, {len(wrong)} not as their CSV files say")
    return 1 if wrong else 0


def draw_all(names, results, folder):
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Refusal("Drawing needs matplotlib: install it for this python3 (it is the only thing here that does).")
    data = figure_data.read_results(results)
    os.makedirs(folder, exist_ok=True)
    for name in names:
        figure = figure_data.FIGURES[name](data)
        if figure is None:
            print(f"{name}.svg is left out: {results} has no {figure_data.NEEDS[name]}")
            continue
        # What it says when only the files that it names are there: what --check will see.
        figure = figure_data.FIGURES[name](figure_data.read_results(results, figure["files"]))
        path = os.path.join(folder, name + ".svg")
        try:
            draw(figure, path)
        except OSError as why:
            raise Refusal(f"{path} cannot be written: {why.strerror}.")
        print(f"{path}: from {', '.join(figure['files'])}")
    return 0


class Parser(argparse.ArgumentParser):
    def error(self, message):  # one sentence, as from the labs
        raise Refusal(f"{message[0].upper()}{message[1:]}; --help lists the options.")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(figure_data.FIGURES)}; default: all")
    parser.add_argument("--check", action="store_true", help="draw nothing")
    parser.add_argument("--results", default=os.path.relpath(os.path.join(root, "bench", "results")), metavar="DIR")
    parser.add_argument("--output", default=os.path.relpath(os.path.join(root, "figures")), metavar="DIR")
    try:
        o = parser.parse_args()
        for name in o.names:
            if name not in figure_data.FIGURES:
                raise Refusal(f"There is no figure {name}; there are {', '.join(figure_data.FIGURES)}.")
        return (check_all if o.check else draw_all)(o.names or list(figure_data.FIGURES), o.results, o.output)
    except Refusal as why:
        print(why, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
