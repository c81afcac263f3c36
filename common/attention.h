// attention.h - the problem that every lab solves, as the kernels and the host see it.
//
//     O = softmax(scale * Q K^T) V        LSE = log sum exp of the scaled scores (natural logarithm)
//
// Read by C11 (the host side in common/) and by CUDA C (the labs), so it holds plain structs and small inline
// functions only. Sizes are counts of elements unless a name says bytes.
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "numbers.h"

// A function that both the host and a kernel may call.
#if defined(__CUDACC__) || (defined(SIMT_CPU) && defined(__cplusplus))
#define ATTENTION_FN __host__ __device__ static inline
#else
#define ATTENTION_FN static inline
#endif

// A (batch, head, sequence, head_dim) view of memory, in any order of the first three: (batch, head, seq,
// dim) and (batch, seq, head, dim) differ only in their strides. The last dimension is always contiguous.
struct tensor {
    void *data;            // first element, in device memory
    int64_t stride_batch;  // elements from one batch to the next
    int64_t stride_head;   // elements from one head to the next
    int64_t stride_row;    // elements from one token to the next
};

struct trace;

struct attention {
    struct tensor q;  // [batch][heads][seqlen_q][head_dim]
    struct tensor k;  // [batch][kv_heads][seqlen_k][head_dim]
    struct tensor v;  // [batch][kv_heads][seqlen_k][head_dim]
    struct tensor o;  // [batch][heads][seqlen_q][head_dim]
    float *lse;       // [batch][heads][seqlen_q], contiguous
    // The backward pass (lab 06), with L = sum(O * dO): d_o = dL/dO like o, an input as q, k, v, o and lse
    // are; dq = dL/dQ like q, dk = dL/dK like k and dv = dL/dV like v. Elsewhere their data are null
    // pointers.
    struct tensor d_o, dq, dk, dv;
    void *workspace;  // what the kernel's workspace function asked for (bytes), 256-byte aligned, holding
                      // anything
    int batch, heads, kv_heads;  // heads is a multiple of kv_heads (grouped-query attention)
    int seqlen_q, seqlen_k;
    int head_dim;
    int pad;      // elements between the rows of every tensor that are of no row: the strides know them, too
    float scale;  // the scores are scale * (q . k)
    int causal;   // 1: query i sees keys j <= i + seqlen_k - seqlen_q (aligned bottom right)
    // 1: a sliding window beside causal. Query i, which stands at key i + seqlen_k - seqlen_q, sees from
    // window_left keys before it to window_right keys after it, both included; NO_LIMIT: all on that side.
    int window;
    int window_left, window_right;
    enum dtype dtype;  // storage type of all tensors; lse is in fp32
    // Packed sequences of several lengths, without padding (flash_attn_varlen_func of the FlashAttention
    // library): batch is 1, seqlen_q and seqlen_k are the tokens of all sequences together, and sequence s
    // has queries cu_seqlens_q[s] ... cu_seqlens_q[s + 1] - 1 and keys cu_seqlens_k[s] ... cu_seqlens_k[s +
    // 1] - 1. Mask and window are of each sequence by itself.
    int sequences;            // 0: not packed
    const int *cu_seqlens_q;  // [sequences + 1], ascending from 0; in device memory for a kernel
    const int *cu_seqlens_k;  // the same for keys
    // How many blocks share a query's keys, for kernels that split them (lab 08); 0: as many as the kernel's
    // own rule says.
    int splits;
    struct trace *trace;  // in a traced launch, where it keeps its timeline (trace.h); else a null pointer
    // Sequences that grow, packed (lab 08; growth.h): so many of the rows of K and V that cu_seqlens_k
    // gives a sequence hold its keys by now, and its queries are the last of them; [sequences], in device
    // memory. The name is the FlashAttention library's. A null pointer: all of them.
    const int *seqused_k;
    int planned;  // 1: the kernel's plan (lab.h) of these lengths is in the workspace
    // Where launch enqueues its kernels (a cudaStream_t), for those with FEATURE_GROWING; null: the default
    // stream.
    void *stream;
};

#define NO_LIMIT (-1)

// The head of K and V that query head `head` reads: heads / kv_heads neighbouring query heads share one.
ATTENTION_FN int kv_head_of(const struct attention *a, int head) { return head / (a->heads / a->kv_heads); }

// How many keys query i sees, where there is no window and nothing is packed; they are keys 0 ...
// visible_keys - 1. May be 0 (causal with seqlen_q > seqlen_k): then O = 0 and LSE = -inf.
ATTENTION_FN int visible_keys(const struct attention *a, int64_t i) {
    if (!a->causal) return a->seqlen_k;
    int64_t n = i + 1 + a->seqlen_k - a->seqlen_q;
    return (int)(n < 0 ? 0 : n > a->seqlen_k ? a->seqlen_k : n);
}

// Keys first ... end - 1; first <= end.
struct span {
    int first, end;
};

// The keys that query i of a sequence of seqlen_q queries and seqlen_k keys sees under a's mask and window.
ATTENTION_FN struct span visible_span(const struct attention *a, int seqlen_q, int seqlen_k, int64_t i) {
    int64_t at = i + seqlen_k - seqlen_q, first = 0, end = seqlen_k;
    if (a->window && a->window_left != NO_LIMIT && at - a->window_left > first) first = at - a->window_left;
    if (a->window && a->window_right != NO_LIMIT && at + a->window_right + 1 < end)
        end = at + a->window_right + 1;
    if (a->causal && at + 1 < end) end = at + 1;
    if (end < 0) end = 0;
    if (first > end) first = end;
    struct span span = {(int)first, (int)end};
    return span;
}

// Sequence n of a packed problem, or all of one that is not packed (n is 0): where its queries and keys begin
// in their tensors, and how many they are. Reads cu_seqlens.
struct sequence {
    int first_query, first_key, seqlen_q, seqlen_k;
};
ATTENTION_FN struct sequence sequence_at(const struct attention *a, int n) {
    struct sequence s = {0, 0, a->seqlen_q, a->seqlen_k};
    if (a->sequences == 0) return s;
    s.first_query = a->cu_seqlens_q[n], s.seqlen_q = a->cu_seqlens_q[n + 1] - s.first_query;
    s.first_key = a->cu_seqlens_k[n], s.seqlen_k = a->cu_seqlens_k[n + 1] - s.first_key;
    return s;
}

// The sequence that token `token` belongs to: the last that does not begin after it, since those before it
// that begin there, too, are empty.
ATTENTION_FN int sequence_of(const int *cu_seqlens, int sequences, int64_t token) {
    int low = 0, high = sequences;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (cu_seqlens[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// The keys that query i sees, packed or not, both numbered as in their tensors. Reads cu_seqlens.
ATTENTION_FN struct span visible_range(const struct attention *a, int64_t i) {
    struct sequence s = sequence_at(a, a->sequences ? sequence_of(a->cu_seqlens_q, a->sequences, i) : 0);
    struct span span = visible_span(a, s.seqlen_q, s.seqlen_k, i - s.first_query);
    span.first += s.first_key, span.end += s.first_key;
    return span;
}

// Pairs (query, key) that are not masked, summed over batch and heads; the forward pass does 4 * head_dim
// FLOPs for each (two products, a multiplication and an addition), the backward pass 10 * head_dim. Reads
// cu_seqlens.
ATTENTION_FN double visible_pairs(const struct attention *a) {
    double pairs = 0;
    for (int n = 0; n < (a->sequences ? a->sequences : 1); ++n) {
        struct sequence s = sequence_at(a, n);
        if (a->window) {
            for (int64_t i = 0; i < s.seqlen_q; ++i) {
                struct span span = visible_span(a, s.seqlen_q, s.seqlen_k, i);
                pairs += span.end - span.first;
            }
        } else if (!a->causal) {
            pairs += (double)s.seqlen_q * s.seqlen_k;
        } else {
            // Rows that see something see first, first + 1, ..., seqlen_k keys.
            int64_t first = visible_span(a, s.seqlen_q, s.seqlen_k, 0).end, rows = s.seqlen_q;
            if (first == 0) rows = s.seqlen_q < s.seqlen_k ? s.seqlen_q : s.seqlen_k, first = rows ? 1 : 0;
            pairs += (double)rows * ((double)first + (double)first + (double)rows - 1) / 2;
        }
    }
    return pairs * a->batch * a->heads;
}

// Queries numbered through [batch][heads][seqlen_q], as in lse: the number of query (batch, head, i), and
// back.
struct position {
    int batch, head, i;
};
ATTENTION_FN int64_t query_count(const struct attention *a) {
    return (int64_t)a->batch * a->heads * a->seqlen_q;
}
// Rows of K and V of all heads together.
ATTENTION_FN int64_t key_count(const struct attention *a) {
    return (int64_t)a->batch * a->kv_heads * a->seqlen_k;
}
ATTENTION_FN struct position position_of(const struct attention *a, int64_t query) {
    struct position at;
    at.i = (int)(query % a->seqlen_q);
    at.head = (int)(query / a->seqlen_q % a->heads);
    at.batch = (int)(query / a->seqlen_q / a->heads);
    return at;
}

#ifdef __cplusplus
// Address of row i of one head, in elements of type T. All arithmetic is 64-bit: batch * heads * seqlen *
// head_dim passes 2^31 long before memory ends.
template <class T>
__host__ __device__ inline T *row(struct tensor t, int64_t batch, int64_t head, int64_t i) {
    return (T *)t.data + batch * t.stride_batch + head * t.stride_head + i * t.stride_row;
}
#endif

#endif
