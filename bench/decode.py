#!/usr/bin/env python3
"""Decoding at the speed of memory: lab08_flashdecoding beside PyTorch's attention, in one run on one GPU. Prints tables and
writes a CSV.

    python3 bench/decode.py --build build/gpu --csv bench/results/NAME.csv [--part shapes,queries,splits,ragged]

    shapes   one query for each sequence, at the shapes below
    queries  1 to 16 queries for each sequence
    splits   keys split into 1 to 128 parts, chosen by --splits: what more blocks gain and merging costs
    ragged   sequences of very different lengths, and equal ones of as many keys

Labs and peers are timed alike: a CUDA graph of at least 24 launches that take K and V from several copies in turn, four times
the L2 cache together; the median of 30 replays, divided by the launches. GB/s are of K and V, each byte counted once. Needs
PyTorch with CUDA; the lab does not."""
import argparse
import math
import os
import random
import statistics
import sys

import peers
import torch

LAB = "lab08_flashdecoding"
KERNELS = ["unsplit", "split", "one_launch", "balanced"]
PEERS = ["cudnn", "fa2"]
LAUNCHES, REPLAYS = 24, 30
# batch, heads, kv_heads, keys; head_dim 128
SHAPES = [(1, 32, 8, 8192), (1, 32, 8, 65536), (1, 32, 8, 131072), (1, 32, 32, 65536), (8, 32, 8, 8192), (32, 32, 8, 8192),
          (128, 32, 8, 4096), (64, 64, 8, 8192), (1, 16, 1, 131072)]


def time_graph(run, copies):
    """Median time in ms of run(i), i the copy to read, by replays of a graph of many."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            run(i % copies)
    torch.cuda.synchronize()
    launches = math.ceil(LAUNCHES / copies) * copies
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            run(i % copies)
    times = []
    for i in range(REPLAYS + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[3:]) / launches


def time_peers(batch, heads, kv_heads, queries, keys, dim):
    """{peer: ms}; a peer that cannot do the shape is left out."""
    kv_bytes = 2 * batch * kv_heads * keys * dim * 2
    copies = max(2, math.ceil(4 * torch.cuda.get_device_properties(0).L2_cache_size / kv_bytes))
    q = torch.randn(batch, heads, queries, dim, device="cuda", dtype=torch.float16)
    k, v = ([torch.randn(batch, kv_heads, keys, dim, device="cuda", dtype=torch.float16) for _ in range(copies)]
            for _ in range(2))
    times = {}
    for name in PEERS:
        backend = {"cudnn": peers.SDPBackend.CUDNN_ATTENTION, "fa2": peers.SDPBackend.FLASH_ATTENTION}[name]
        try:
            with peers.sdpa_kernel(backend):
                times[name] = time_graph(
                    lambda i: peers.F.scaled_dot_product_attention(q, k[i], v[i], enable_gqa=heads != kv_heads), copies)
        except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
            print(f"    {name}: {str(error).splitlines()[0][:90]}", file=sys.stderr)
    del q, k, v
    torch.cuda.empty_cache()
    return times


def time_lab(build, kernels, heads, kv_heads, dim, options):
    """[(kernel, ms or None, verdict, blocks)] as the lab's own --bench gives them."""
    ran, output = peers.run_lab([os.path.join(build, LAB), "--bench", "--heads", str(heads), "--kv-heads", str(kv_heads),
                                 "--dim", str(dim), *map(str, options)], kernels)
    if not ran:
        sys.exit(output)
    return [(it["kernel"], it.get("graph_ms"), it["verdict"], it.get("blocks", 0)) for it in ran]


class Table:
    """What was measured, printed and kept line by line."""

    def __init__(self, path):
        self.about, _ = peers.about_this_gpu()
        self.path, self.rows = path, []

    def add(self, what, name, ms, kv_bytes, verdict="", blocks=0, **shape):
        rate = kv_bytes / ms / 1e6 if ms else 0
        print(f"    {name:16s} {1e3 * (ms or 0):9.2f} us {rate:8.1f} GB/s  {verdict}", flush=True)
        self.rows.append(dict(self.about, what=what, name=name, batch=shape["batch"], heads=shape["heads"],
                              kv_heads=shape["kv_heads"], seqlen_q=shape["seqlen_q"], seqlen=shape["seqlen"], dim=shape["dim"],
                              splits=shape.get("splits", 0), blocks=blocks, dtype="fp16", us=f"{1e3 * (ms or 0):.3f}",
                              gb_per_s=f"{rate:.1f}", verdict=verdict))
        if self.path:
            peers.write_csv(self.path, self.rows)  # after each line: a run that is cut short leaves what it has


def side_by_side(table, what, build, kernels, batch, heads, kv_heads, queries, keys, dim):
    """A shape: peers, lab, peers again; a peer's time is the better of its two."""
    shape = dict(batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=queries, seqlen=keys, dim=dim)
    kv_bytes = 2 * batch * kv_heads * keys * dim * 2
    print(f"{what}: batch {batch} heads {heads}/{kv_heads} queries {queries} keys {keys}")
    before = time_peers(batch, heads, kv_heads, queries, keys, dim)
    lab = time_lab(build, kernels, heads, kv_heads, dim, ["--batch", batch, "--seqlen-q", queries, "--seqlen-k", keys])
    after = time_peers(batch, heads, kv_heads, queries, keys, dim)
    for name in before:
        table.add(what, name, min(before[name], after.get(name, before[name])), kv_bytes, **shape)
    for kernel, ms, verdict, blocks in lab:
        table.add(what, f"{LAB[:5]}:{kernel}", ms, kv_bytes, verdict, blocks, **shape)


def splits(table, build, keys):
    shape = dict(batch=1, heads=32, kv_heads=8, seqlen_q=1, seqlen=keys, dim=128)
    for count in [1 << i for i in range(8)]:
        print(f"splits: 32/8 heads, {keys} keys, {count} parts")
        for kernel, ms, verdict, blocks in time_lab(build, ["split", "one_launch"], 32, 8, 128,
                                                    ["--seqlen-q", 1, "--seqlen-k", keys, "--splits", count]):
            table.add("splits", f"{LAB[:5]}:{kernel}", ms, 2 * 8 * keys * 128 * 2, verdict, blocks, splits=count, **shape)


def ragged(table, build, batch, most):
    """Lengths 1 to `most` with a heavy tail (log-uniform), and as many keys at equal lengths."""
    chosen = random.Random(1)
    lengths = [1, most] + [int(math.exp(chosen.uniform(0, math.log(most)))) for _ in range(batch - 2)]
    equal = [sum(lengths) // batch] * batch
    equal[-1] += sum(lengths) - sum(equal)
    for name, of in (("ragged", lengths), ("equal", equal)):
        print(f"{name}: {batch} sequences of {min(of)} to {max(of)} keys, {sum(of)} together")
        ones = ",".join(["1"] * batch)
        for kernel, ms, verdict, blocks in time_lab(build, KERNELS, 32, 8, 128,
                                                    ["--seqlens-q", ones, "--seqlens-k", ",".join(map(str, of))]):
            table.add(name, f"{LAB[:5]}:{kernel}", ms, 2 * 8 * sum(of) * 128 * 2, verdict, blocks, batch=batch, heads=32,
                      kv_heads=8, seqlen_q=1, seqlen=sum(of), dim=128)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/gpu", help="folder with the lab's program")
    parser.add_argument("--part", default="shapes,queries,splits,ragged", help="which of them, with commas between")
    parser.add_argument("--csv", help="file to write")
    arguments = parser.parse_args()
    table, parts = Table(arguments.csv), arguments.part.split(",")
    if "shapes" in parts:
        for shape in SHAPES:
            side_by_side(table, "decode", arguments.build, KERNELS, shape[0], shape[1], shape[2], 1, shape[3], 128)
    if "queries" in parts:
        for queries in (1, 2, 4, 8, 16):
            side_by_side(table, "queries", arguments.build, KERNELS[1:], 1, 32, 8, queries, 65536, 128)
    if "splits" in parts:
        for keys in (8192, 65536):
            splits(table, arguments.build, keys)
    if "ragged" in parts:
        ragged(table, arguments.build, 64, 65536)


if __name__ == "__main__":
    main()
