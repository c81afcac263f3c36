#!/usr/bin/env python3
"""Times labs side by side with what a user would pick instead, in one run on one GPU, and writes a CSV.

    python3 bench/peers.py --build build/gpu --lab lab01_naive:cublas --lab lab02_online_softmax:fused
                           --seqlen 1024,4096 --dim 64,128 [--causal] [--backward] --csv bench/results/NAME.csv

At each shape (batch * seqlen = --tokens, heads * dim = --width, fp16) the peers are timed, then the labs' kernels with
--bench, then the peers again; a peer's time is the better of its two. Labs and peers are timed alike: events round one
call, the L2 flushed before each, median of at least 20 repetitions after warm-up. Peers, by PyTorch: `three-step`
(q @ k^T, * scale, softmax, @ v: three kernels and a scaling), `cudnn` and `fa2` (scaled_dot_product_attention).
FLOPs are 4 * dim for each visible pair. With --backward the gradients of q, k and v are timed in place of the forward pass
(which is done once, before), and FLOPs are 10 * dim for each visible pair. Needs PyTorch with CUDA; the labs do not."""
import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

REPETITIONS = 25


def three_step(q, k, v, causal):
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if causal:
        n, m = scores.shape[-2:]
        hidden = torch.ones(n, m, device=q.device, dtype=torch.bool).triu(m - n + 1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v


def fused(backend):
    def run(q, k, v, causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


PEERS = {
    "three-step": three_step,
    "cudnn": fused(SDPBackend.CUDNN_ATTENTION),
    "fa2": fused(SDPBackend.FLASH_ATTENTION),
}


def time_ms(run, flush):
    """Median time of run() in ms, the L2 flushed before each call."""
    for _ in range(3):
        run()
    times = []
    for _ in range(REPETITIONS):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def gradients(peer, q, k, v, d_o, causal):
    """What to time of a peer's backward pass: the forward pass is done here."""
    o = peer(q, k, v, causal)
    return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)


def time_peers(names, shape, causal, backward, flush):
    """{peer: ms}; a peer that cannot do the shape, or does not fit, is left out."""
    q, k, v = (torch.randn(*shape, device="cuda", dtype=torch.float16, requires_grad=backward) for _ in range(3))
    d_o = torch.randn(*shape, device="cuda", dtype=torch.float16)
    times = {}
    for name in names:
        try:
            run = gradients(PEERS[name], q, k, v, d_o, causal) if backward else lambda: PEERS[name](q, k, v, causal)
            times[name] = time_ms(run, flush)
            del run
        except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
            print(f"    {name}: {str(error).splitlines()[0][:90]}", file=sys.stderr)
            torch.cuda.empty_cache()
    del q, k, v, d_o
    torch.cuda.empty_cache()
    return times


def run_lab(command, kernels):
    """The kernels that ran as the lab's --json tells of them, and its output; no kernels where something stopped it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = command + ["--json", file.name]
        for kernel in kernels:
            command += ["--kernel", kernel]
        done = subprocess.run(command, capture_output=True, text=True)
        # A wrong kernel makes it 1, and so does a CUDA error, which leaves nothing in the file.
        if done.returncode not in (0, 1) or os.path.getsize(file.name) == 0:
            return [], f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        with open(file.name) as text:
            return [it for it in json.load(text)["kernels"] if it["ran"]], done.stdout


def time_lab(build, lab, kernels, shape, causal):
    """[(kernel, ms or None, verdict)] as the lab's own --bench gives them."""
    batch, heads, seqlen, dim = shape
    ran, output = run_lab([os.path.join(build, lab), "--bench", "--batch", str(batch), "--heads", str(heads),
                           "--seqlen", str(seqlen), "--dim", str(dim), "--causal" if causal else "--full"], kernels)
    if not ran:
        print(f"    {lab}: {output.strip()[-200:]}", file=sys.stderr)
    return [(it["kernel"], it.get("ms"), it["verdict"]) for it in ran]


def about_this_gpu():
    """What every row of a CSV says of the machine and the code, and a tensor of twice the L2 cache's size."""
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, device="cuda", dtype=torch.uint8)
    commit = os.environ.get("COMMIT") or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                                                        text=True).stdout.strip()
    about = dict(gpu=torch.cuda.get_device_name(), date=datetime.date.today().isoformat(), commit=commit,
                 torch=torch.__version__, cudnn=torch.backends.cudnn.version())
    print(" ".join(f"{key} {value}" for key, value in about.items()))
    return about, flush


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def numbers(text):
    return [int(it) for it in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/gpu", help="folder with the labs' programs")
    parser.add_argument("--lab", action="append", default=[], metavar="LAB[:KERNEL,...]")
    parser.add_argument("--peer", action="append", choices=list(PEERS), help="default: all")
    parser.add_argument("--seqlen", type=numbers, default=[1024, 2048, 4096, 8192])
    parser.add_argument("--dim", type=numbers, default=[64, 128])
    parser.add_argument("--causal", action="store_true", help="causal as well as full")
    parser.add_argument("--backward", action="store_true", help="the gradients of q, k and v")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--csv", help="file to write")
    arguments = parser.parse_args()

    about, flush = about_this_gpu()
    rows = []
    for dim in arguments.dim:
        for causal in (False, True) if arguments.causal else (False,):
            for seqlen in arguments.seqlen:
                shape = (max(1, arguments.tokens // seqlen), arguments.width // dim, seqlen, dim)
                pairs = shape[0] * shape[1] * (seqlen * (seqlen + 1) / 2 if causal else seqlen * seqlen)
                names = arguments.peer or list(PEERS)
                before = time_peers(names, shape, causal, arguments.backward, flush)
                results = []
                for text in arguments.lab:
                    lab, _, kernels = text.partition(":")
                    for kernel, ms, verdict in time_lab(arguments.build, lab, kernels.split(",") if kernels else [], shape, causal):
                        results.append((f"{lab}:{kernel}", ms, verdict))
                after = time_peers(names, shape, causal, arguments.backward, flush)
                results = [(name, min(before[name], after.get(name, before[name])), "") for name in before] + results
                print(f"batch {shape[0]} heads {shape[1]} seqlen {seqlen} dim {dim}{' causal' if causal else ''}", flush=True)
                for name, ms, verdict in results:
                    rate = (10 if arguments.backward else 4) * dim * pairs / ms / 1e9 if ms else 0
                    print(f"    {name:32s} {ms or 0:9.3f} ms {rate:8.1f} TFLOP/s  {verdict}", flush=True)
                    rows.append(dict(about, what="backward" if arguments.backward else "forward", name=name, batch=shape[0], heads=shape[1], kv_heads=shape[1],
                                     seqlen=seqlen, dim=dim, causal=int(causal), dtype="fp16", ms=f"{ms or 0:.4f}",
                                     tflops=f"{rate:.2f}", verdict=verdict))
                if arguments.csv:
                    write_csv(arguments.csv, rows)  # after each shape: a run that is cut short leaves what it has


if __name__ == "__main__":
    main()
