// backward.h - what the right gradients are, and how far from them an honest kernel may be: the backward
// pass's part of reference.h, with the same two computations side by side, in double and in the storage type.
//
//     P = exp(S - LSE)   dV = P^T dO   dP = dO V^T   delta_i = sum_j P_ij dP_ij = dO_i . O_i
//     dS = P (dP - delta)   dQ = scale dS K   dK = scale dS^T Q        (FlashAttention-2, algorithm 2)
//
// dK and dV sum over the query heads that share a KV head. A query that sees no key contributes nothing and
// its dQ is 0; so are dK and dV of a key that no query sees. `a` holds host pointers; a->d_o is read.
//
// The plain implementation is what the three steps of lecture 25, section 1.2 do on their way back in an
// automatic differentiation: S and P as in reference_forward; dP summed in fp32 and rounded to the storage
// type; delta = sum_j P_ij dP_ij in fp32; dS = scale P (dP - delta) in fp32, rounded; each product summed in
// fp32, dK and dV over the whole group, and rounded. A dP beyond the storage type's largest number stays in
// fp32. (8-bit types are not meant for gradients: they keep S and dP in fp32 and round the rest.)
//
// The errors (row_error of reference.h). u is half an ulp at 1 of the storage type, e = 2^-24, f = |scale|,
// D = head_dim, n how many pairs are summed; |x| of a row is its norm, max|x| its largest element. Sums over
// j go over the keys that a query sees, sums over i over the queries of the group that see a key. Of a pair,
//
//     c = f |q_i| |k_j|; of what is in an LSE the largest     the magnitude that a score's sum passes through
//     r = |dO_i| |v_j| + |dO_i| sum_j P_ij |v_j|              the same of dP - delta
//
//     dQ_i   scale  f max|K| sum_j P (|dP| + |delta_i|)
//            sums   f max|K| sum_j P r max(1, c)
//            worst  f max|K| sum_j P r y
//     dK_j   scale  f sum_i max|q_i| P (|dP| + |delta_i|)
//            sums   f sum_i max|q_i| P r max(1, c)
//            worst  f sum_i max|q_i| P r y
//     dV_j   scale  sum_i max|dO_i| P
//            sums   sum_i max|dO_i| P max(1, c)
//            worst  sum_i max|dO_i| P (x + u + n e)
//
// x is the share of P that an honest kernel may be off by: its scores, and so its LSE, are off as reference.h
// says, and P is stored: x = exp(error of the score + error of the LSE) - 1 + u. y is the same of P r: dP is
// off by (u + D e) |dO| |v|, delta by (x + u + (n + D) e) times its part of r (through P, through O as
// stored, through its sum), and dS and the output are stored: y = x + 2 u + (1 + x) (x + u + (n + D) e). No P
// is off by more than 1 and no dP - delta by more than 2 r, whatever x and y. Numbers in the subnormal range
// are off by half the smallest one besides.
//
// `least`. The plain implementation needs no O on its way back; a kernel's delta rests on O as stored, made
// of P as stored. So each gradient counts as off by no less than what this moves it by, with half an ulp of
// error in each O, added up as independent errors are, and in each P, in one direction, as many equal P have
// it:
//
//     delta_i   d_i = u sqrt((sum_j P |dP|)^2 + sum_c (dO_ic O_ic)^2); where it is given, through O alone
//     dQ_i      f max_c |sum_j P k_jc| d_i
//     dK_j      f sqrt(sum_i (max|q_i| P d_i)^2)
//     dV_j      0
#ifndef BACKWARD_H
#define BACKWARD_H

#include "reference.h"

enum gradient_index { GRADIENT_Q, GRADIENT_K, GRADIENT_V, GRADIENTS };

// One gradient, for the rows that are examined: of dq row (batch * heads + head) * seqlen_q + i, of dk and
// dv, which have the same rows, (batch * kv_heads + kv_head) * seqlen_k + j.
struct gradient {
    struct rows rows;
    double *exact, *plain;  // [rows.count][head_dim]
    // [rows.count]; keys: how many keys the row sees, or by how many queries of all heads it is seen; score:
    // of dq, the largest |score| of them; o: the errors of this gradient; lse: nothing.
    struct row_facts *facts;
    // Of dv: some query whose dO is not zero sees an examined key, so dv cannot be all zero. 0 for dq and dk,
    // which can be: where there is one key, or one value for all.
    int has_signal;
};

// Fills `out` (each gradient of its own rows). Threaded; the result does not depend on how. `budget` is that
// of rows_choose: past as much work as a forward pass may take for it, each gradient is examined on a sample
// of its rows, with the first and last row of the first and last head. A sampled row of dQ is still worked
// out from q, k, v and d_o alone; dK and dV of a key need LSE and delta of every query that sees it, and
// where dQ is sampled (only there) a->lse and delta = dO . O of a->o are taken as given: what the kernel
// itself is given. Infinity: all rows. Returns 0, or -1 without memory.
int gradients_make(const struct attention *a, double budget, struct gradient out[GRADIENTS]);
void gradients_free(struct gradient gradients[GRADIENTS]);

// Bytes of memory that gradients_make takes at least with REFERENCE_BUDGET and one thread. A double, since
// the product of a shape may pass every integer. Reads cu_seqlens.
double gradients_bytes(const struct attention *a);

#endif
