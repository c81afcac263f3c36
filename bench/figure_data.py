"""What bench/figures.py draws: the CSV files of bench/results read into rows, and each figure made of them as plain lists and
dictionaries, without a picture. Needs Python 3 alone.

A figure is {"title", "panels", "files", "notes"}; a panel has "title", "x", "y" and either "series" (label, lab, variant,
x, y) or "bars" (label, lab, value, text)."""
import csv
import os
import re

KIND = re.compile(r"(?P<kind>.+)-(?P<date>\d{4}-\d\d-\d\d)(?P<more>-[a-z]+)?\.csv$")
# What wrote a file, by what its rows are.
COMMANDS = {"ladder": "./lab ladder", "ladder-cpu": "./lab ladder --backend cpu", "forward": "python3 bench/peers.py",
            "backward": "python3 bench/peers.py --backward", "decode": "python3 bench/decode.py", "bench": "./lab run -- --bench"}
PEERS = {"cudnn": "cuDNN", "fa2": "FlashAttention-2", "three-step": "three steps, PyTorch"}
# NVIDIA's data sheets, as in common/profile.c: A100 SXM 80 GB, H100 SXM, H200 SXM; dense fp16 tensor cores and fp32 CUDA
# cores in TFLOP/s, HBM in TB/s.
ROOFS = [("A100", 312, 19.5, 2.039), ("H100", 989, 67, 3.35), ("H200", 989, 67, 4.8)]


class Refusal(Exception):
    """What is wrong, in one sentence."""


class Results:
    """timed: rows of a GPU (what, name, lab, kernel, seqlen, dim, causal, tflops or gb_per_s, ...). counted: rows of the cpu
    backend. Both in the order of the files' dates, so that a later row counts."""

    def __init__(self):
        self.timed, self.counted, self.about = [], [], {}


def newest(folder, gpu):
    """The newest file of each kind for this GPU and the cpu backend, oldest first."""
    latest = {}
    for name in sorted(os.listdir(folder)):
        found = KIND.match(name)
        if not found or not re.match(rf"(ladder-)?{re.escape(gpu)}(-|$)|ladder-cpu$", found["kind"]):
            continue
        kind = found["kind"] + (found["more"] or "")
        latest[kind] = max(latest.get(kind, ("", "")), (found["date"], name))
    return [name for _, name in sorted(latest.values())]


def lab_and_kernel(name):
    """("lab04", "pipelined", "lab 04 pipelined") of lab04_fa2:pipelined; of a peer ("peer", its name, what it is called)."""
    if name in PEERS:
        return "peer", name, PEERS[name]
    found = re.match(r"(lab(\d\d))[a-z0-9_]*:(\w+)$", name)
    return (found[1], found[3], f"lab {found[2]} {found[3]}") if found else (None, name, name)


def timed_row(row, file):
    """A row of peers.py, decode.py or of a GPU's ladder; None where nothing was timed."""
    if "lab" in row:
        if not row["tflops"] or row["options"] or row["dtype"] != "fp16":
            return None
        row = dict(row, gpu=row["device"], name=f"{row['lab']}:{row['kernel']}", causal=int(row["mask"] == "causal"),
                   what="backward" if "backward" in row["lab"] else "forward")
    lab, kernel, label = lab_and_kernel(row["name"])
    rate = float(row.get("tflops") or row.get("gb_per_s") or 0)
    if not rate or not lab or row.get("verdict", "") not in ("", "right"):
        return None
    return {"file": file, "what": row["what"], "lab": lab, "kernel": kernel, "label": label, "batch": int(row.get("batch") or 0),
            "heads": int(row["heads"]), "kv_heads": int(row.get("kv_heads") or 0), "seqlen": int(row.get("seqlen") or 0),
            "dim": int(row["dim"]), "causal": int(row.get("causal") or 0), "splits": int(row.get("splits") or 0), "rate": rate}


def counted_row(row, file):
    lab, kernel, label = lab_and_kernel(f"{row['lab']}:{row['kernel']}")
    if row["verdict"] != "right" or row["options"]:
        return None
    return {"file": file, "lab": lab, "kernel": kernel, "label": label, "of": row["lab"], "seqlen": int(row["seqlen"]),
            "dim": int(row["dim"]), "causal": int(row["mask"] == "causal"), "memory": float(row["memory_bytes"]),
            "bytes": float(row["sector_bytes"]), "intensity": float(row["flops_per_byte"])}


def read_file(results, folder, name):
    path = os.path.join(folder, name)
    dates, commits, device, what, number = set(), {}, "", "", 1
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                on_cpu = name.startswith("ladder-cpu")
                device, what = row.get("gpu") or row["device"], row.get("what") or ("ladder-cpu" if on_cpu else "ladder")
                dates.add(row["date"])
                commits[row["commit"]] = None
                if "lengths" in row:
                    continue  # packed sequences: a table of its own, no figure
                made = (counted_row if on_cpu else timed_row)(row, name)
                if made:
                    (results.counted if on_cpu else results.timed).append(made)
    except OSError as why:
        raise Refusal(f"{path} cannot be read: {why.strerror}.")
    except (KeyError, ValueError, TypeError, csv.Error) as why:
        raise Refusal(f"{path}, line {number}, is not as bench/peers.py, bench/decode.py and ./lab ladder write it: {why!r}.")
    if "-bench-" in name:
        what = "bench"
    commit = ", ".join(c for c in commits if c)
    results.about[name] = (f"{device}, {' and '.join(sorted(dates))}: {COMMANDS.get(what, COMMANDS['decode'])}"
                           f"{', commit ' + commit if commit else ''} ({name})")


def read_results(folder, files=None, gpu="h200"):
    if not os.path.isdir(folder):
        raise Refusal(f"{folder} is no folder: --results needs the one with the CSV files.")
    results = Results()
    for name in newest(folder, gpu) if files is None else files:
        read_file(results, folder, name)
    return results


def figure(results, title, panels, rows, *notes, **more):
    """None without panels; else with the files of these rows, and what is to be said of them."""
    if not panels:
        return None
    files = [name for name in results.about if any(row["file"] == name for row in rows)]
    said = [results.about[name] for name in files] + list(notes) + ["Drawn by: python3 bench/figures.py"]
    return dict(title=title, panels=panels, files=files, notes=said, **more)


def latest_of(rows):
    """Of rows of one kernel those of the newest file: a curve is of one run."""
    return [row for row in rows if row["file"] == rows[-1]["file"]] if rows else []


def beside(rows, others):
    """Of a peer's rows those of the run of the last of these labs that has it, else of the newest: runs differ."""
    for file in dict.fromkeys(row["file"] for row in reversed(others) if row["lab"] != "peer"):
        same = [row for row in rows if row["file"] == file]
        if same:
            return same
    return latest_of(rows)


def curve(rows, key, label=None, variant=0):
    points = {row["seqlen"]: row[key] for row in rows}
    return {"label": label or rows[0]["label"], "lab": rows[0]["lab"], "variant": variant, "x": sorted(points),
            "y": [points[x] for x in sorted(points)]}


# ---- speed over N ------------------------------------------------------------------------------------------------------
FORWARD = [("lab01", "cublas"), ("lab02", "fused"), ("lab03", "fa1_padded"), ("lab04", "pipelined"), ("lab05", "balanced"),
           ("lab07", "lazy_max"), ("lab07", "fp8"), ("peer", "three-step"), ("peer", "fa2"), ("peer", "cudnn")]
BACKWARD = [("lab06", "stored"), ("lab06", "separate"), ("lab06", "fused"), ("lab06", "fused_deterministic"), ("peer", "fa2"),
            ("peer", "cudnn")]


def speed(results, what, chosen, title):
    panels, used = [], []
    for dim in (128, 64):
        for causal in (0, 1):
            series, drawn = [], []
            for lab, kernel in chosen:  # peers are the last
                rows = [row for row in results.timed if (row["what"], row["lab"], row["kernel"], row["dim"], row["causal"])
                        == (what, lab, kernel, dim, causal)]
                rows = beside(rows, drawn) if lab == "peer" else latest_of(rows)
                if len({row["seqlen"] for row in rows}) > 1 and (lab != "lab05" or causal):
                    variant = [k for each, k in chosen if each == lab].index(kernel)
                    series.append(curve(rows, "rate", variant=variant))
                    drawn += rows
            used += drawn
            if series:
                panels.append({"title": f"head_dim {dim}, {'causal' if causal else 'full'}", "x": "N (16384 tokens in all)",
                               "y": "TFLOP/s", "xscale": "log", "series": series})
    return figure(results, title, panels, used, "FLOPs of visible pairs only. A curve is of one run; cards and runs differ.")


def tflops(results):
    return speed(results, "forward", FORWARD, "Attention forward: speed over N, and what a user would pick instead")


def backward(results):
    return speed(results, "backward", BACKWARD, "Attention backward: speed over N, and what a user would pick instead")


# ---- step by step ------------------------------------------------------------------------------------------------------
def one_run(rows, lab):
    """Of a lab's rows those of one file: the one with most of its kernels, of several the newest."""
    of_lab = [row for row in rows if row["lab"] == lab]
    files = list(dict.fromkeys(row["file"] for row in of_lab))
    best = max(files, key=lambda file: (len({row["kernel"] for row in of_lab if row["file"] == file}), files.index(file)), default=None)
    return [row for row in of_lab if row["file"] == best]


def bars(results, what, causal, labs, peers, seqlen=4096, dim=128):
    rows = [row for row in results.timed if (row["what"], row["causal"], row["seqlen"], row["dim"]) == (what, causal, seqlen, dim)]
    chosen = [row for lab in labs for row in one_run(rows, lab)]
    if not chosen:
        return [], []
    for peer in peers:
        chosen += beside([row for row in rows if row["kernel"] == peer], chosen)[-1:]
    made = []
    for row in {(row["label"]): row for row in chosen}.values():
        text = f"{row['rate']:.3g}" if row["rate"] < 100 else f"{row['rate']:.0f}"
        made.append({"label": row["label"], "lab": row["lab"], "value": row["rate"], "text": text})
    return made, chosen


def steps(results):
    panels, used = [], []
    for title, what, causal, labs, peers, scale in (
            ("labs 01 to 04, full (logarithmic)", "forward", 0, ["lab01", "lab02", "lab03", "lab04"], ["three-step", "fa2", "cudnn"], "log"),
            ("lab 05, causal", "forward", 1, ["lab05"], ["fa2"], "linear"),
            ("lab 06, backward, full", "backward", 0, ["lab06"], ["fa2", "cudnn"], "linear"),
            ("lab 07, full", "forward", 0, ["lab07"], ["fa2", "cudnn"], "linear")):
        made, rows = bars(results, what, causal, labs, peers)
        if made:
            used += rows
            panels.append({"title": title, "x": "TFLOP/s", "xscale": scale, "bars": made})
    return figure(results, "Step by step: N = 4096, batch 4, 16 heads, head_dim 128, fp16", panels, used,
                  "FLOPs of visible pairs only. Bars of other files are of other runs; cards and runs differ.", size=[10.5, 8.0])


# ---- memory and traffic over N, per head -------------------------------------------------------------------------------
# (lab, kernel, formula of N and d, as text): tests/io holds the kernels' traffic to the same.
MEMORY = [("lab01", "tiled", lambda n, d: 4 * n * n + 8 * n * d + 4 * n, "4N² + 8Nd + 4N"),
          ("lab06", "stored", lambda n, d: 4 * n * n + 16 * n * d + 8 * n, "4N² + 16Nd + 8N"),
          ("lab06", "separate", lambda n, d: 16 * n * d + 8 * n, "16Nd + 8N"),
          ("lab04", "pipelined", lambda n, d: 8 * n * d + 4 * n, "8Nd + 4N")]


def up(x, y):
    return -(-x // y)


TRAFFIC = [("lab01", "naive", lambda n, d: 33 * n * n * d + 3 * n * n * d + 10 * n * n + 32 * n + 2 * n * d, "36N²d + 10N² + 2Nd + 32N"),
           ("lab02", "fused", lambda n, d: 4 * n * n * d + 4 * n * d + 32 * n, "4N²d + 4Nd + 32N"),
           ("lab01", "tiled", lambda n, d: 6 * n * d * (n // 64) + 2 * n * n * up(d, 64) + 10 * n * n + 32 * n + 2 * n * d,
            "(6d/64 + 2⌈d/64⌉ + 10)N² + 2Nd + 32N"),
           ("lab03", "fa1_padded", lambda n, d: up(n, up(58112, 4 * d)) * (10 * n * d + 16 * n) + 14 * n * d + 20 * n,
            "⌈N/Bc⌉(10Nd + 16N) + 14Nd + 20N"),
           ("lab04", "pipelined", lambda n, d: up(n, 128) * 4 * n * d + 4 * n * d + 4 * n, "⌈N/128⌉4Nd + 4Nd + 4N")]


LENGTHS = [64 << i for i in range(10)]


def counted_and_formulas(results, dim, table, key):
    """Points as counted and the formulas as lines, which must go through them: (series, rows)."""
    series, used, seen = [], [], {}
    for lab, kernel, formula, text in table:
        rows = [row for row in results.counted if (row["lab"], row["kernel"], row["dim"], row["causal"]) == (lab, kernel, dim, 0)]
        if not rows:
            continue
        for row in rows:
            if formula(row["seqlen"], dim) != row[key]:
                raise Refusal(f"{row['file']}: {row['label']} at N = {row['seqlen']}, head_dim {dim} has {row[key]:.0f} bytes; the "
                              f"formula {text} of bench/figure_data.py gives {formula(row['seqlen'], dim)}.")
        used += rows
        seen[lab] = variant = seen.get(lab, -1) + 1
        series.append(dict(curve(rows, key, f"{rows[0]['label']}, counted", variant), shown="points"))
        series.append({"label": f"  {text}", "lab": lab, "variant": variant, "x": LENGTHS, "y": [formula(n, dim) for n in LENGTHS],
                       "shown": "line"})
    return series, used


def memory(results):
    series, used = counted_and_formulas(results, 128, MEMORY, "memory")
    panel = {"title": "one head, head_dim 128, fp16: inputs, outputs and workspace", "x": "N", "y": "bytes", "xscale": "log", "yscale": "log",
             "series": series}
    return figure(results, "Memory over N: N² against N", [panel] if used else [], used,
                  "Points: what the kernel has allocated. Lines: the formula; 4N² are S and P, kept. Lab 02's fused kernel has what lab 04's have.", size=[8.4, 4.6])


def traffic(results):
    dim = 64  # lab 03 has other tiles at 128 (tests/io/lab03_tiled_fa1.io)
    series, used = counted_and_formulas(results, dim, TRAFFIC, "bytes")
    series.append({"label": "8N² + 8Nd (the lecture, lab 01)", "lab": "line", "variant": 1, "x": LENGTHS,
                   "y": [8 * n * n + 8 * n * dim for n in LENGTHS], "shown": "line"})
    panel = {"title": f"one head, head_dim {dim}, full, fp16", "x": "N", "y": "bytes in 32-byte sectors", "xscale": "log", "yscale": "log",
             "series": series}
    return figure(results, "Traffic over N: what the kernels ask of global memory, caches not counted", [panel] if used else [], used,
                  "Points: counted on the cpu backend. Lines: the formulas to which tests/io holds the kernels, Bc = ⌈58112/4d⌉.",
                  size=[8.8, 5.2])


# ---- roofline ----------------------------------------------------------------------------------------------------------
def roof(tensor, bandwidth, xs):
    return [min(tensor, bandwidth * x) for x in xs]


def roofline(results, seqlen=1024, dim=128):
    rows = [row for row in results.counted if (row["seqlen"], row["dim"], row["causal"]) == (seqlen, dim, 0) and row["lab"] != "lab08"]
    rows += [row for row in results.counted if (row["seqlen"], row["dim"], row["lab"], row["kernel"]) == (seqlen, dim, "lab08", "split")]
    if not rows:
        return None
    xs = [2.0 ** i for i in range(-4, 10)] + [tensor / bandwidth for _, tensor, _, bandwidth in ROOFS]
    xs = sorted(xs)
    series = [{"label": f"{name}: {tensor} TFLOP/s (fp16 tensor cores), {bandwidth} TB/s", "lab": "line", "variant": at, "x": xs,
               "y": roof(tensor, bandwidth, xs), "shown": "line"} for at, (name, tensor, _, bandwidth) in enumerate(ROOFS)]
    series.append({"label": "H100 and H200: 67 TFLOP/s (fp32 CUDA cores)", "lab": "line", "variant": 3, "x": [67 / 4.8, xs[-1]],
                   "y": [67, 67], "shown": "line"})
    series.append({"label": "A100: 19.5 TFLOP/s (fp32 CUDA cores)", "lab": "line", "variant": 4, "x": [19.5 / 2.039, xs[-1]],
                   "y": [19.5, 19.5], "shown": "line"})
    used, variants = [], {}
    for lab in sorted({row["lab"] for row in rows}):
        for kernel in dict.fromkeys(row["kernel"] for row in rows if row["lab"] == lab):
            row = [each for each in rows if (each["lab"], each["kernel"]) == (lab, kernel)][-1]
            what = "backward" if lab == "lab06" else "forward"
            timed = latest_of([each for each in results.timed if (each["what"], each["lab"], each["kernel"], each["seqlen"],
                                                                 each["dim"], each["causal"]) == (what, lab, kernel, seqlen, dim, 0)])
            same = [each for each in series if each.get("of") == (lab, round(row["intensity"], 1), bool(timed))]
            if same and not timed:  # kernels of one lab that move the same: one point
                same[0]["label"] += f", {kernel}"
                continue
            variants[lab] = variants.get(lab, -1) + 1
            rate = timed[-1]["rate"] if timed else min(989, 4.8 * row["intensity"])
            used += [row] + timed[-1:]
            series.append({"label": f"{row['label']}{' (measured)' if timed else ''}", "lab": lab, "variant": variants[lab], "shown": "points",
                           "x": [row["intensity"]], "y": [rate], "of": (lab, round(row["intensity"], 1), bool(timed)),
                           "hollow": not timed})
    for each in series:
        if each.pop("of", None):
            each["label"] += f": {each['x'][0]:.3g}"
    panel = {"title": f"counted FLOP/byte at N = {seqlen}, head_dim {dim}, full, fp16 (lab 08: one query)", "x": "FLOP per byte of global memory, caches not counted",
             "y": "TFLOP/s", "xscale": "log", "yscale": "log", "base": 10, "at": [0.1, 1, 10, 100], "series": series, "xlim": [0.06, 520], "ylim": [0.25, 1500]}
    near = dict(panel, title="its upper end", xlim=[15, 300], ylim=[55, 1200], at=[20, 30, 50, 100, 200, 300])
    return figure(results, "Roofline: the labs' intensity on A100, H100 and H200", [panel, near], used,
                  "Peaks: NVIDIA's data sheets of A100 SXM 80 GB, H100 SXM, H200 SXM (dense). Hollow: what an H200's roof allows at that intensity.",
                  "Filled: measured on an H200; above the roof where caches serve what is counted here as traffic.", size=[14.0, 5.4])


# ---- decoding ----------------------------------------------------------------------------------------------------------
def decode(results):
    panels, used = [], []
    rows = [row for row in results.timed if row["what"] == "splits"]
    series = []
    for variant, (kernel, keys) in enumerate(sorted({(row["kernel"], row["seqlen"]) for row in rows})):
        of = latest_of([row for row in rows if (row["kernel"], row["seqlen"]) == (kernel, keys)])
        series.append({"label": f"lab 08 {kernel}, {keys // 1024}K keys", "lab": "lab08", "variant": variant, "x": [row["splits"] for row in of],
                       "y": [row["rate"] for row in of]})
        used += of
    if series:
        panels.append({"title": "batch 1, 32/8 heads, one query", "x": "parts into which the keys are split", "y": "GB/s of K and V",
                       "xscale": "log", "series": series})
    rows = latest_of([row for row in results.timed if row["what"] == "decode"])
    shapes = list(dict.fromkeys((row["batch"], row["heads"], row["kv_heads"], row["seqlen"]) for row in rows))
    series = []
    for variant, (lab, kernel) in enumerate(dict.fromkeys((row["lab"], row["kernel"]) for row in rows)):
        of = [row for row in rows if (row["lab"], row["kernel"]) == (lab, kernel)]
        at = [shapes.index((row["batch"], row["heads"], row["kv_heads"], row["seqlen"])) for row in of]
        series.append({"label": of[0]["label"], "lab": lab, "variant": variant, "x": at, "y": [row["rate"] for row in of], "shown": "points"})
    if series:
        names = [f"B{b} {keys // 1024}K\n{h}/{g}" for b, h, g, keys in shapes]
        panels.append({"title": "batch, keys, heads/kv-heads; one query", "x": "", "y": "GB/s of K and V", "series": series,
                       "ticks": names})
        used += rows
    return figure(results, "Decoding: bandwidth over splits and shapes", panels, used,
                  "By CUDA-graph replay; each byte of K and V counted once. Data sheet of the H200: 4800 GB/s.", size=[13.0, 4.4])


FIGURES = {"tflops": tflops, "backward": backward, "steps": steps, "memory": memory, "traffic": traffic, "roofline": roofline,
           "decode": decode}
NEEDS = {"tflops": "CSV of bench/peers.py or a GPU's ladder", "backward": "CSV of bench/peers.py --backward", "steps": "CSV of a GPU at N = 4096",
         "memory": "ladder-cpu CSV", "traffic": "ladder-cpu CSV", "roofline": "ladder-cpu CSV with N = 1024 at head_dim 128",
         "decode": "CSV of bench/decode.py (h200-decode-DATE.csv)"}
