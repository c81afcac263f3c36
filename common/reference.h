// reference.h - what the right answer is, and how far from it an honest kernel may be.
//
// The reference works in double from the inputs as they are stored (already rounded to a->dtype). Beside it
// runs the "plain implementation": what three separate kernels do in the same storage type (lecture 25,
// section 1.2). Its error against the reference is the yardstick of compare.h; no tolerance in this
// repository is a number someone picked.
//
// Kernels that quantise to e4m3 have a plain implementation of their own, at the end.
//
// `a` holds host pointers in this file, cu_seqlens included: the host's mirror of what a kernel gets, of any
// strides. A row sees what visible_range of attention.h says; of nothing else do its values depend.
#ifndef REFERENCE_H
#define REFERENCE_H

#include "attention.h"
#include "quantise.h"

// The output rows under examination, ascending; a row's number is (batch * heads + head) * seqlen_q + i.
struct rows {
    int64_t count;
    int64_t total;   // batch * heads * seqlen_q
    int64_t *index;  // null: every row, count == total
};

// Multiply-adds that one product of the reference may cost (about a second on two cores with everything
// around it); a bigger problem is examined on a sample of its rows, each of them in full.
#define REFERENCE_BUDGET ((double)(1LL << 30))

// Chooses the rows to examine: all of them, or, past the budget, a sample that is the same on every
// machine and holds the first and last row of the first and last head. At least 64 rows. Returns 0, or
// -1 without memory.
int rows_choose(const struct attention *a, double budget, struct rows *rows);
void rows_free(struct rows *rows);
static inline int64_t rows_at(const struct rows *rows, int64_t n) { return rows->index ? rows->index[n] : n; }

// Of one output of one row: `scale`, what its error is in proportion to; `worst`, more than honest arithmetic
// can be off by; `sums`, the magnitude of what is summed in fp32, which may cancel; `least`, what the plain
// implementation counts as off by at least: what a gradient is off by through the O that was stored before it
// (backward.h), and O through P's rounding in kernels that quantise (reference_quantised); else 0.
struct row_error {
    double scale, worst, sums, least;
};

// What a row looks at. Infinity and NaN are passed over.
struct row_facts {
    int64_t keys;          // that it sees
    double score;          // largest |score| among them
    struct row_error o;    // O is linear in V: scale is the largest |element| of V that it sees
    struct row_error lse;  // off by no more than its scores are: scale is the largest |score|
};

struct reference {
    double *o;        // [rows.count][head_dim]
    double *lse;      // [rows.count]
    double *plain_o;  // the same by the plain implementation
    double *plain_lse;
    struct row_facts *facts;  // [rows.count]
    double largest_score;     // of all examined rows
    int has_signal;           // some examined query sees a V that is not zero: then O is not all zero
};

// Bytes of memory that the forward pass takes at least, with one thread at work, on the rows that
// REFERENCE_BUDGET chooses. A double, since the product of a shape may pass every integer.
double reference_bytes(const struct attention *a);

// Forward pass, for the chosen rows. A query without keys gives O = 0 and LSE = -inf. Masked keys are never
// looked at, so NaN in them changes nothing; a visible NaN reaches the result. Threaded, the result does not
// depend on how. Returns 0, or -1 without memory.
//
// The plain implementation: scores accumulated in fp32, scaled, rounded to the storage type; softmax of them
// in fp32; P rounded to the storage type; P V accumulated in fp32, rounded to the storage type; LSE in fp32
// from the rounded scores. A row with a score beyond the storage type's largest number keeps its scores in
// fp32. So do the 8-bit types, where no one keeps scores, and there P = exp(s - max) is multiplied by 256
// before it is rounded (so that small probabilities are not lost below e4m3's 2^-9) and O divided by 256
// times the sum.
//
// The worst case of row_error. A score is off by at most
//     e = (head_dim + 4) 2^-24 |scale| |q| max|k| + u max|score|
// (a sum of head_dim products in fp32, of absolute values that Cauchy-Schwarz bounds, the scale and the
// exponential's argument; u is half an ulp at 1 of the type that scores are kept in), which multiplies a
// probability by a factor within exp(+-2 e). Storing it costs u and, in the subnormal range, half the
// smallest number; sums over n keys in fp32 cost n 2^-24 each. Times max|V| that is O's error, never more
// than 2 max|V|; of LSE the scores' error and one sum remain.
int reference_forward(const struct attention *a, const struct rows *rows, struct reference *out);
void reference_free(struct reference *out);

// What a kernel that quantises to e4m3 (`as`: how; quantise.h) is held against, for the same rows, from
// reference_forward's `truth`. O and LSE are the same, in double from the inputs as they are, so that
// quantising is an error like any other; but NaN where an infinity of the inputs has become NaN. Threaded,
// the result does not depend on how. Returns 0, or -1 without memory; reference_free frees it.
//
// The plain implementation emulates the quantisation: Q, K and V to e4m3 and back, by whole blocks whatever
// the row sees of them; scores in fp32; P = exp(s - max) under the row's maximum to e4m3 in [0, 256], its sum
// in fp32 from what was not rounded; P V as tensor cores sum it (e4m3_sum.h), 256 keys at a time, and these
// sums in fp32; divided, rounded to the storage type.
//
// The errors of Q, K and V, by far the most, are the same in a kernel. But it rounds P under the maximum so
// far, and may err where the emulation, in a few rows, is lucky. So `least` of O is two standard deviations
// of what P's rounding does, as if it were random where p lies between two numbers of e4m3 (but for the row's
// largest, if no other is as large in another block: that is exact); and what tensor
// cores cut off, as if that were random, too: half a unit of each term that has so many bits.
//
// In the worst case of row_error, a score is off by |scale| (|q| |dk| + |dq| |k| + |dq| |dk|) beside fp32's
// sums, with dq and dk what quantising changed in this query and at most in a key that it sees; P by 2^-4 in
// proportion, or in the subnormal range 2^-10 / 256; the tensor cores cut off 2^-13 of a sum with each term,
// and twice as much with it; and max|V| grows by what quantising changed at most in it.
int reference_quantised(const struct attention *a, const struct rows *rows, enum quantised as,
                        const struct reference *truth, struct reference *out);
double reference_quantised_bytes(const struct attention *a);  // as reference_bytes

#endif
