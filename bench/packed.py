#!/usr/bin/env python3
"""What padding costs: sequences of different lengths packed, padded, and as many FLOPs at equal lengths, in one run on
one GPU, beside FlashAttention-2's own packed kernel. Prints a table and writes a CSV.

    python3 bench/packed.py --build build/gpu --lengths 64,128,256,512,1024,2048,4096,8192 --csv bench/results/NAME.csv

    packed    lab05_causal --kernel packed --seqlens LENGTHS
    shuffled  the same sequences in another order
    padded    lab05_causal --kernel balanced on a batch in which every sequence has the longest one's length; its TFLOP/s
              count only what the lengths ask for
    equal     --kernel packed and balanced on a plain batch of nearly as many FLOPs and tokens
    fa2       PyTorch's FlashAttention-2 on the packed sequences, and on the equal ones

FLOPs are 4 * dim for each visible pair. Needs PyTorch with CUDA; the lab does not."""
import argparse
import math
import os
import random
import sys

import peers
import torch

LAB = "lab05_causal"


def pairs(lengths, causal):
    return sum(n * (n + 1) // 2 if causal else n * n for n in lengths)


def time_lab(build, kernel, causal, heads, dim, shape):
    ran, output = peers.run_lab([os.path.join(build, LAB), "--bench", "--causal" if causal else "--full", "--heads", str(heads),
                                 "--dim", str(dim), *shape], [kernel])
    if not ran or ran[0]["verdict"] != "right":
        sys.exit(output)
    return ran[0]["ms"]


def time_fa2(lengths, causal, heads, dim, flush):
    total = sum(lengths)
    q, k, v = (torch.randn(total, heads, dim, device="cuda", dtype=torch.float16) for _ in range(3))
    sums = [0]
    for n in lengths:
        sums.append(sums[-1] + n)
    cu_seqlens = torch.tensor(sums, device="cuda", dtype=torch.int32)
    longest = max(lengths)
    return peers.time_ms(lambda: torch.ops.aten._flash_attention_forward(q, k, v, cu_seqlens, cu_seqlens, longest, longest,
                                                                         0.0, causal, False), flush)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/gpu", help="folder with the lab's program")
    parser.add_argument("--lengths", type=peers.numbers, default=[64 << i for i in range(8)])
    parser.add_argument("--dim", type=peers.numbers, default=[64, 128])
    parser.add_argument("--width", type=int, default=2048, help="heads * dim")
    parser.add_argument("--csv", help="file to write")
    arguments = parser.parse_args()

    about, flush = peers.about_this_gpu()
    lengths = arguments.lengths
    shuffled = random.Random(1).sample(lengths, len(lengths))
    # As many sequences of one length as come nearest to both the FLOPs and the tokens.
    squares = sum(n * n for n in lengths)
    count = max(1, round(sum(lengths) ** 2 / squares))
    equal = [round(math.sqrt(squares / count))] * count
    rows = []
    for dim in arguments.dim:
        heads = arguments.width // dim
        for causal in (False, True):
            def lab(kernel, *shape):
                return time_lab(arguments.build, kernel, causal, heads, dim, shape)

            def text(it):
                return ",".join(map(str, it))

            plain = ["--batch", str(count), "--seqlen", str(equal[0])]
            measured = [
                ("packed", lengths, lab("packed", "--seqlens", text(lengths))),
                ("packed, shuffled", lengths, lab("packed", "--seqlens", text(shuffled))),
                ("padded", lengths, lab("balanced", "--batch", str(len(lengths)), "--seqlen", str(max(lengths)))),
                ("equal, packed", equal, lab("packed", "--seqlens", text(equal))),
                ("equal, balanced", equal, lab("balanced", *plain)),
                ("fa2, packed", lengths, time_fa2(lengths, causal, heads, dim, flush)),
                ("fa2, equal", equal, time_fa2(equal, causal, heads, dim, flush)),
            ]
            print(f"heads {heads} dim {dim}{' causal' if causal else ''}: lengths {text(lengths)}; equal: {count} x {equal[0]}")
            for name, of, ms in measured:
                rate = 4 * dim * heads * pairs(of, causal) / ms / 1e9
                print(f"    {name:20s} {ms:9.3f} ms {rate:8.1f} TFLOP/s", flush=True)
                rows.append(dict(about, what="packed", name=name, lengths=text(of), heads=heads, dim=dim, causal=int(causal),
                                 dtype="fp16", ms=f"{ms:.4f}", tflops=f"{rate:.2f}"))
    if arguments.csv:
        peers.write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
