// learner.h - a layer of attention that learns by gradient descent; where the gradients come from is for
// whoever sets it up. Used by --train, see train.h.
#ifndef LEARNER_H
#define LEARNER_H

#include "options.h"
#include "tensors.h"

// The layer: Q = X Wq for each head, K = X Wk and V = X Wv for each KV head.
struct layer {
    int tokens, dim, heads, kv_heads;
    uint64_t seed;
    double *x;        // [tokens][dim]
    int64_t weights;  // in all: [heads] of Wq, [kv_heads] of Wk, [kv_heads] of Wv, each [dim][dim]
    int64_t outputs;  // heads * tokens * dim
};

// X of N(0,1). Returns 0, or -1 without memory.
int layer_make(struct layer *layer, const struct options *options);
void layer_free(struct layer *layer);

struct learner {
    const struct layer *layer;
    struct attention a;   // on the host: q, k, v and d_o of a->dtype
    double *weights;      // [layer->weights] ...
    double *speed;        // ... and what momentum keeps of their changes,
    double *slope;        // ... and the gradient of half the sum of (O - target)^2
    double *target;       // [layer->outputs], what O should be
    double *gradient[3];  // of Q, K and V: [heads or kv_heads][tokens][dim]
    double *d_o;          // [layer->outputs]
    // Works out O from a->q, a->k and a->v, hands it to learner_loss, and then, with the a->d_o that this
    // leaves, `gradient`. Returns 0, or -1 without memory.
    int (*pass)(struct learner *learner, void *context, double *loss);
    void *context;
};

// With weights of N(0, 1 / dim), those of Wq and Wk sqrt(2) times as large; `number` tells one set of random
// weights from another. q, k, v and d_o of `a` are the caller's. Returns 0, or -1 without memory.
int learner_make(struct learner *learner, const struct layer *layer, int number, const struct attention *a);
void learner_free(struct learner *learner);

// The same weights and target in other bases of head_dim, mirrored in one random direction, which `number`
// chooses, for Q and K, and in another for V and O. In exact arithmetic the losses stay the same.
void learner_mirror(struct learner *learner, int number);

// The loss of an O [layer->outputs], the mean of (O - target)^2, and a->d_o, O - target: the gradient of half
// the sum, since the mean's would sink among fp16's smallest numbers.
double learner_loss(struct learner *learner, const double *o);

// Works out loss and slope at the weights as they are. Returns 0, or -1 without memory.
int learner_look(struct learner *learner, double *loss);

// Descends `steps` steps: speed = momentum * speed + slope, weights -= rate * speed. The losses on the way go
// to curve[0 ... steps]. Returns 0, or -1 without memory.
int learner_descend(struct learner *learner, int steps, double momentum, double rate, double *curve);

// The largest eigenvalue of the second derivative of half the sum of squares, about: power iteration, where
// the derivative along a direction is a difference of slopes. 0 or not finite if it cannot be told; -1
// without memory.
double learner_curvature(struct learner *learner);

// A tensor of `a` from and to values [heads][tokens][dim] (batch 1).
void learner_store(const struct attention *a, enum tensor_index which, const double *values);
void learner_load(const struct attention *a, enum tensor_index which, double *values);

#endif
