#!/usr/bin/env python3
"""Writes the golden cases beside this script: attention and its gradients by NumPy in float64.

common/reference.c and common/backward.c are what every lab is judged by, so they are judged themselves, by
tests/goldens/goldens_test.c, against these files. They come from another language and from other formulas: here the
whole matrix P is formed and the gradients are matrix products, while our C goes row by row.

    python3 make_goldens.py          needs NumPy; only who changes a case runs it, the tests read the committed files

Each case is a folder with
    q k v do      float16, [batch][heads or kv_heads][seqlen][head_dim]   (float16 so that any reader holds them exactly)
    o dq dk dv    float64, shaped like q q k v
    lse           float64, [batch][heads][seqlen_q], natural logarithm
and a line "name causal scale window_left window_right seqlens_q seqlens_k" in goldens.txt: -1 where a side of the window
has no limit, - where nothing is packed. Every scale is a float32 value, as in struct attention.
"""

import math
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent

# name: (batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, causal, scale or None for 1/sqrt(head_dim), spread of q)
CASES = {
    "full": (2, 2, 2, 7, 7, 8, False, None, 1),
    "causal": (1, 2, 2, 9, 9, 8, True, None, 1),
    "gqa_6_2": (1, 6, 2, 3, 5, 8, False, None, 1),  # 6/2 and 6/3: heads / kv_heads differs from kv_heads
    "gqa_6_3_causal": (1, 6, 3, 4, 6, 8, True, None, 1),
    "short_q_causal": (1, 2, 1, 3, 10, 8, True, None, 1),  # bottom right: row 0 sees 8 keys
    "empty_rows": (1, 2, 1, 9, 4, 8, True, None, 1),  # rows 0 ... 4 see no key: o = 0, lse = -inf, gradients 0
    "one_key": (1, 2, 2, 5, 1, 8, False, None, 1),  # p = 1: o = v, dq = dk = 0
    "no_keys": (1, 2, 2, 3, 0, 8, False, None, 1),
    "scale": (1, 1, 1, 6, 5, 16, False, 0.3, 1),
    "huge_logits": (1, 1, 1, 6, 6, 8, True, 1.0, 300),  # exp overflows without the row maximum
    "window": (1, 4, 2, 6, 9, 8, False, None, 1),
    "window_empty_rows": (1, 2, 1, 9, 3, 8, True, None, 1),  # rows 0 ... 5 stand before all keys
    "packed_causal": (1, 6, 2, 11, 12, 8, True, None, 1),
    "packed_window": (1, 2, 2, 10, 11, 8, False, None, 1),
}

# Of the cases that have them: the window (left, right), None for no limit; and the lengths of packed queries and keys,
# whose sums are seqlen_q and seqlen_k above.
WINDOWS = {"window": (2, 1), "window_empty_rows": (1, None), "packed_window": (1, 1)}
PACKED = {
    "packed_causal": ([3, 0, 5, 2, 1], [4, 3, 2, 3, 0]),  # no queries, more queries than keys, no keys
    "packed_window": ([4, 6], [8, 3]),
}


def visible(lengths_q, lengths_k, causal, window):
    """The mask of all queries and all keys: a block for each sequence. Causal is aligned bottom right."""
    mask = np.zeros((sum(lengths_q), sum(lengths_k)), bool)
    first_q = first_k = 0
    for seqlen_q, seqlen_k in zip(lengths_q, lengths_k, strict=True):
        ahead = np.arange(seqlen_k)[None, :] - (np.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q)
        block = np.ones((seqlen_q, seqlen_k), bool)
        if causal:
            block &= ahead <= 0
        left, right = window
        if left is not None:
            block &= ahead >= -left
        if right is not None:
            block &= ahead <= right
        mask[first_q : first_q + seqlen_q, first_k : first_k + seqlen_k] = block
        first_q += seqlen_q
        first_k += seqlen_k
    return mask


def attention(q, k, v, do, mask, scale):
    """Forward and backward of one case, float64 in and out. k and v have kv_heads heads."""
    group = q.shape[1] // k.shape[1]
    k_full = np.repeat(k, group, axis=1)
    v_full = np.repeat(v, group, axis=1)
    s = np.where(mask, scale * np.einsum("bhid,bhjd->bhij", q, k_full), -np.inf)
    m = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
    m_or_0 = np.where(np.isneginf(m), 0.0, m)  # -inf - -inf would be NaN in a row without keys
    e = np.exp(s - m_or_0)
    total = e.sum(axis=-1, keepdims=True)
    p = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = (m_or_0 + np.log(total))[..., 0]
    o = np.einsum("bhij,bhjd->bhid", p, v_full)

    dv_full = np.einsum("bhij,bhid->bhjd", p, do)
    dp = np.einsum("bhid,bhjd->bhij", do, v_full)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    dq = scale * np.einsum("bhij,bhjd->bhid", ds, k_full)
    dk_full = scale * np.einsum("bhij,bhid->bhjd", ds, q)

    def sum_over_group(t):
        batch, heads, seqlen, dim = t.shape
        return t.reshape(batch, heads // group, group, seqlen, dim).sum(axis=2)

    return {"o": o, "lse": lse, "dq": dq, "dk": sum_over_group(dk_full), "dv": sum_over_group(dv_full)}


def main():
    lines = ["# name causal scale window_left window_right seqlens_q seqlens_k: written by make_goldens.py"]
    for number, (name, case) in enumerate(CASES.items()):
        batch, heads, kv_heads, seqlen_q, seqlen_k, dim, causal, scale, spread = case
        scale = np.float32(1 / math.sqrt(dim) if scale is None else scale)
        rng = np.random.Generator(np.random.Philox(number))
        q_shape = (batch, heads, seqlen_q, dim)
        k_shape = (batch, kv_heads, seqlen_k, dim)
        inputs = {
            "q": spread * rng.standard_normal(q_shape),
            "k": rng.standard_normal(k_shape),
            "v": rng.standard_normal(k_shape),
            "do": rng.standard_normal(q_shape),
        }
        inputs = {key: value.astype(np.float16) for key, value in inputs.items()}
        wide = {key: value.astype(np.float64) for key, value in inputs.items()}
        window = WINDOWS.get(name, (None, None))
        lengths = PACKED.get(name, ([seqlen_q], [seqlen_k]))
        mask = visible(*lengths, causal, window)
        outputs = attention(wide["q"], wide["k"], wide["v"], wide["do"], mask, float(scale))

        folder = HERE / name
        folder.mkdir(exist_ok=True)
        for key, value in (inputs | outputs).items():
            np.save(folder / f"{key}.npy", np.ascontiguousarray(value))
        sides = " ".join("-1" if side is None else str(side) for side in window)
        packed = " ".join(",".join(map(str, side)) for side in lengths) if name in PACKED else "- -"
        lines.append(f"{name} {int(causal)} {float(scale):.9g} {sides} {packed}")
    (HERE / "goldens.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
