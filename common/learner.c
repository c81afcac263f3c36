#include "learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Numbers of what the generator makes here; 0 to 3 are Q, K, V and dO (inputs.h).
enum { RANDOM_X = 4, RANDOM_WEIGHTS, RANDOM_MIRROR };
enum { PARTS = 3 };  // Q, K and V

// ---------------------------------------------------------------- the layer

int layer_make(struct layer *l, const struct options *o) {
    *l =
        (struct layer){.tokens = o->seqlen_q, .dim = o->head_dim, .heads = o->heads, .kv_heads = o->kv_heads};
    l->seed = o->seed;
    l->weights = ((int64_t)l->heads + 2 * (int64_t)l->kv_heads) * l->dim * l->dim;
    l->outputs = (int64_t)l->heads * l->tokens * l->dim;
    l->x = malloc((size_t)l->tokens * (size_t)l->dim * sizeof *l->x);
    if (!l->x) return -1;
    for (int64_t i = 0; i < l->tokens; ++i)
        for (int64_t c = 0; c < l->dim; ++c)
            l->x[i * l->dim + c] = inputs_normal(l->seed, RANDOM_X, 0, 0, i, c);
    return 0;
}

void layer_free(struct layer *l) {
    free(l->x);
    memset(l, 0, sizeof *l);
}

static int heads_of(const struct layer *l, int part) { return part == 0 ? l->heads : l->kv_heads; }

// Where the matrix of one head begins among the weights.
static int64_t matrix_at(const struct layer *l, int part, int head) {
    int64_t before = part == 0 ? 0 : part == 1 ? l->heads : (int64_t)l->heads + l->kv_heads;
    return (before + head) * l->dim * l->dim;
}

// ---------------------------------------------------------------- tensors

void learner_store(const struct attention *a, enum tensor_index which, const double *values) {
    const struct tensor *t = tensor_in(a, which);
    for (int64_t h = 0; h < tensor_heads(a, which); ++h)
        for (int64_t i = 0; i < tensor_tokens(a, which); ++i)
            for (int64_t c = 0; c < a->head_dim; ++c)
                number_store(a->dtype, t->data, h * t->stride_head + i * t->stride_row + c, *values++);
}

void learner_load(const struct attention *a, enum tensor_index which, double *values) {
    const struct tensor *t = tensor_in(a, which);
    for (int64_t h = 0; h < tensor_heads(a, which); ++h)
        for (int64_t i = 0; i < tensor_tokens(a, which); ++i)
            for (int64_t c = 0; c < a->head_dim; ++c)
                *values++ = number_load(a->dtype, t->data, h * t->stride_head + i * t->stride_row + c);
}

// ---------------------------------------------------------------- a learner

int learner_make(struct learner *r, const struct layer *l, int number, const struct attention *a) {
    size_t weights = (size_t)l->weights, outputs = (size_t)l->outputs;
    size_t of_keys = (size_t)l->kv_heads * (size_t)l->tokens * (size_t)l->dim;
    memset(r, 0, sizeof *r);
    r->layer = l, r->a = *a;
    r->weights = calloc(3 * weights + 3 * outputs + 2 * of_keys, sizeof *r->weights);
    if (!r->weights) return -1;
    r->speed = r->weights + weights, r->slope = r->speed + weights, r->target = r->slope + weights;
    r->d_o = r->target + outputs, r->gradient[0] = r->d_o + outputs;
    r->gradient[1] = r->gradient[0] + outputs, r->gradient[2] = r->gradient[1] + of_keys;
    for (int part = 0; part < PARTS; ++part)
        for (int h = 0; h < heads_of(l, part); ++h)
            for (int64_t i = 0; i < (int64_t)l->dim * l->dim; ++i)
                r->weights[matrix_at(l, part, h) + i] =
                    inputs_normal(l->seed, RANDOM_WEIGHTS, (int64_t)PARTS * number + part, h, i / l->dim,
                                  i % l->dim) *
                    sqrt((part < 2 ? 2.0 : 1.0) / l->dim);
    return 0;
}

void learner_free(struct learner *r) {
    free(r->weights);
    memset(r, 0, sizeof *r);
}

// Mirrors rows [count][dim] in the direction `number`.
static void mirror(const struct layer *l, double *rows, int64_t count, int number) {
    double square = 0;
    for (int64_t c = 0; c < l->dim; ++c)
        square += pow(inputs_normal(l->seed, RANDOM_MIRROR, number, 0, 0, c), 2);
    for (; count > 0 && square > 0; --count, rows += l->dim) {
        double along = 0;
        for (int64_t c = 0; c < l->dim; ++c)
            along += rows[c] * inputs_normal(l->seed, RANDOM_MIRROR, number, 0, 0, c);
        for (int64_t c = 0; c < l->dim; ++c)
            rows[c] -= 2 * along / square * inputs_normal(l->seed, RANDOM_MIRROR, number, 0, 0, c);
    }
}

void learner_mirror(struct learner *r, int number) {
    const struct layer *l = r->layer;
    int64_t of_scores = matrix_at(l, 2, 0) / l->dim;  // rows of Wq and Wk
    mirror(l, r->weights, of_scores, 2 * number);
    mirror(l, r->weights + of_scores * l->dim, l->weights / l->dim - of_scores, 2 * number + 1);
    mirror(l, r->target, l->outputs / l->dim, 2 * number + 1);
}

double learner_loss(struct learner *r, const double *o) {
    double sum = 0;
    for (int64_t i = 0; i < r->layer->outputs; ++i) {
        r->d_o[i] = o[i] - r->target[i];
        sum += r->d_o[i] * r->d_o[i];
    }
    learner_store(&r->a, TENSOR_DO, r->d_o);
    return sum / (double)r->layer->outputs;
}

// to[rows][dim] += from[rows][dim] w[dim][dim]
static void multiply(const double *from, const double *w, int64_t rows, int dim, double *to) {
    for (; rows > 0; --rows, from += dim, to += dim)
        for (int64_t k = 0; k < dim; ++k)
            for (int64_t c = 0; c < dim; ++c) to[c] += from[k] * w[k * dim + c];
}

// w[dim][dim] += x[rows][dim]^T y[rows][dim]
static void multiply_transposed(const double *x, const double *y, int64_t rows, int dim, double *w) {
    for (; rows > 0; --rows, x += dim, y += dim)
        for (int64_t k = 0; k < dim; ++k)
            for (int64_t c = 0; c < dim; ++c) w[k * dim + c] += x[k] * y[c];
}

int learner_look(struct learner *r, double *loss) {
    const struct layer *l = r->layer;
    int64_t head_values = (int64_t)l->tokens * l->dim;
    for (int part = 0; part < PARTS; ++part) {
        double *values = r->gradient[part];  // there is no gradient yet
        memset(values, 0, (size_t)heads_of(l, part) * (size_t)head_values * sizeof *values);
        for (int h = 0; h < heads_of(l, part); ++h)
            multiply(l->x, r->weights + matrix_at(l, part, h), l->tokens, l->dim, values + h * head_values);
        learner_store(&r->a, TENSOR_Q + part, values);
    }
    if (r->pass(r, r->context, loss) != 0) return -1;
    memset(r->slope, 0, (size_t)l->weights * sizeof *r->slope);
    for (int part = 0; part < PARTS; ++part)
        for (int h = 0; h < heads_of(l, part); ++h)
            multiply_transposed(l->x, r->gradient[part] + h * head_values, l->tokens, l->dim,
                                r->slope + matrix_at(l, part, h));
    return 0;
}

int learner_descend(struct learner *r, int steps, double momentum, double rate, double *curve) {
    for (int step = 0; step <= steps; ++step) {
        if (learner_look(r, &curve[step]) != 0) return -1;
        for (int64_t i = 0; i < r->layer->weights && step < steps; ++i) {
            r->speed[i] = momentum * r->speed[i] + r->slope[i];
            r->weights[i] -= rate * r->speed[i];
        }
    }
    return 0;
}

static double norm_of(const double *x, int64_t count) {
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) squares += x[i] * x[i];
    return sqrt(squares);
}

double learner_curvature(struct learner *r) {
    enum { ITERATIONS = 8 };
    const double step = 1e-3;  // of the length of the weights: small, and far above the roundings of fp32
    int64_t n = r->layer->weights;
    double curvature = 0, loss, *start = malloc(3 * (size_t)n * sizeof *start);
    if (!start) return -1;
    double *slope = start + n, *direction = slope + n, length = norm_of(r->weights, n);
    memcpy(start, r->weights, (size_t)n * sizeof *start);
    int status = learner_look(r, &loss);
    memcpy(slope, r->slope, (size_t)n * sizeof *slope);
    memcpy(direction, slope, (size_t)n * sizeof *direction);
    for (int i = 0; i < ITERATIONS && status == 0; ++i) {
        double scale = step * length / norm_of(direction, n);
        for (int64_t j = 0; j < n; ++j) r->weights[j] = start[j] + scale * direction[j];
        status = learner_look(r, &loss);
        for (int64_t j = 0; j < n; ++j) direction[j] = r->slope[j] - slope[j];
        curvature = norm_of(direction, n) / (step * length);
    }
    memcpy(r->weights, start, (size_t)n * sizeof *start);
    free(start);
    return status == 0 ? curvature : -1;
}
