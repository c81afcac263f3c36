// quantise.h - how the fp8 kernels (lab 07) turn fp16 and bf16 into e4m3: the definition that a kernel and
// its emulation in reference.h share, so that neither can drift away from the other.
//
// Q, K and V are cut into blocks of 128 tokens of one (batch, head), of K and V of one (batch, KV head);
// block n is tokens 128 n ... 128 n + 127, the last may be shorter. Each has one scale in fp32
// (FlashAttention-3, Shah et al. 2024, section 3.3, "block quantization"):
//
//     amax = the largest finite |element| of the block    scale = amax / 448    x is stored as e4m3(x 448 /
//     amax)
//
// rounded to nearest even, and means stored x scale. Q and K of a rotated kernel first go through a
// randomised Hadamard rotation of their columns ("incoherent processing", the same section): x' = H S x /
// sqrt(D), S the signs of quantise_sign, H the Hadamard matrix of D = 64, 128, ... columns, the ones past
// head_dim zero. It is orthogonal, so Q K^T stays what it was, and an outlier spreads over D columns.
//
// S = Q K^T is summed in fp32 and multiplied by the scales of its two blocks. P = exp(S - max) is stored as
// e4m3(256 P), 256 so that what is smaller than e4m3's 2^-9 counts still; the row's sum, and so LSE, is that
// of P in fp32. The products with V are multiplied by the scale of V's block. They are summed by the tensor
// cores of Hopper, which cut off what is small beside the largest (e4m3_sum.h), 256 keys at a time, and these
// sums in fp32. (A kernel may have another factor, as long as no P passes 448 and few are too small for e4m3:
// rounding is relative, and so is what is cut off. And it may sum otherwise, as long as it is no less exact.)
//
// NaN and infinity. amax is over finite elements, or one NaN would take along the block's other rows, of
// which a query may see any (a mask runs through a block). A NaN stays NaN, as e4m3's 0x7f. e4m3 has no
// infinity, and to store one as 448 would be a wrong answer that looks right: it becomes NaN, too. So a query
// that sees an infinity in Q or K has O and LSE NaN, and a column of V with one gives NaN in that column of
// O, though fp16 would give a number at times (a score of -inf is a probability of 0) or an infinity.
#ifndef QUANTISE_H
#define QUANTISE_H

#include "attention.h"

// What a kernel does with its inputs; in struct support (lab.h), it chooses what the kernel is judged by.
enum quantised {
    QUANTISED_NOT,          // computes in the storage type
    QUANTISED_E4M3,         // quantises Q, K and V as above
    QUANTISED_E4M3_ROTATED  // and rotates Q and K before
};

#define QUANTISE_BLOCK 128     // tokens that share a scale
#define QUANTISE_MAX 448.0f    // e4m3's largest number, which amax becomes
#define QUANTISE_P_MAX 256.0f  // what the largest P of a row becomes ...
#define QUANTISE_P_EXPONENT 8  // ... as a power of two: 256 exp2(x) = exp2(x + 8)
#define QUANTISE_SUMMED 256    // keys whose products with P the tensor cores sum
// A block of nothing larger is stored as zeros, under scale 1: 448 / amax stays in the range of fp32.
#define QUANTISE_SMALLEST 0x1p-100f

// Blocks of one head of `tokens` tokens.
ATTENTION_FN int64_t quantise_blocks(int64_t tokens) {
    return (tokens + QUANTISE_BLOCK - 1) / QUANTISE_BLOCK;
}

// Columns of the rotation, and of a row in memory: head_dim filled up with zeros to a power of two from 64
// on.
ATTENTION_FN int quantise_columns(int head_dim) {
    int columns = 64;
    while (columns < head_dim) columns *= 2;
    return columns;
}

// `amax` so far and one element more. (x - x is 0 of finite numbers only.)
ATTENTION_FN float quantise_amax(float amax, float x) {
    float magnitude = x < 0 ? -x : x;
    return magnitude > amax && x - x == 0 ? magnitude : amax;
}

// The scale of a block, which a stored value is multiplied by to get back; and what a value is multiplied by
// before it is stored.
ATTENTION_FN float quantise_scale(float amax) { return amax < QUANTISE_SMALLEST ? 1 : amax / QUANTISE_MAX; }
ATTENTION_FN float quantise_inverse(float amax) { return amax < QUANTISE_SMALLEST ? 0 : QUANTISE_MAX / amax; }

// An element of a block as a float in e4m3's range, up to rounding: it is left to convert it, to nearest even
// and saturating. NaN of NaN and of infinity.
ATTENTION_FN float quantise_scaled(float x, float inverse) { return x - x == 0 ? x * inverse : x - x; }

// The sign that column c has before the rotation, 1 or -1: a bit of MurmurHash3's finaliser (Appleby) of c.
ATTENTION_FN float quantise_sign(int column) {
    uint32_t x = (uint32_t)column * 0x9e3779b9u + 0x7f4a7c15u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (x ^ x >> 16) & 1 ? -1.0f : 1.0f;
}

// 1 / sqrt(columns), exact where that is a power of two; columns is one.
ATTENTION_FN float quantise_rotation_factor(int columns) {
    float factor = 1;
    for (; columns > 2; columns /= 4) factor /= 2;
    return columns == 2 ? factor * 0.70710678f : factor;
}

// Rotates one row of `columns` elements (a power of two) in place, in fp32: signs, then butterflies
// (Sylvester's order; the fast Walsh-Hadamard transform), then the factor. A kernel may take the butterflies
// in any order.
ATTENTION_FN void quantise_rotate(float *x, int columns) {
    for (int c = 0; c < columns; ++c) x[c] *= quantise_sign(c);
    for (int step = 1; step < columns; step *= 2)
        for (int c = 0; c < columns; ++c)
            if (!(c & step)) {
                float low = x[c], high = x[c + step];
                x[c] = low + high, x[c + step] = low - high;
            }
    for (int c = 0; c < columns; ++c) x[c] *= quantise_rotation_factor(columns);
}

#endif
