#define _DEFAULT_SOURCE
#include "problem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compare.h"
#include "device.h"
#include "machine.h"
#include "npy.h"

enum tensor_index { Q, K, V, O, TENSORS };
static const char *const tensor_file[TENSORS] = {"q", "k", "v", "o"};

struct tensor tensor_view(void *data, enum layout layout, int heads, int seqlen, int head_dim) {
    int64_t h = heads, s = seqlen, d = head_dim;
    struct tensor t = {.data = data, .stride_batch = h * s * d};
    t.stride_head = layout == LAYOUT_BHSD ? s * d : d;
    t.stride_row = layout == LAYOUT_BHSD ? d : h * d;
    return t;
}

static struct tensor *tensor_at(struct attention *a, int which) {
    return which == Q ? &a->q : which == K ? &a->k : which == V ? &a->v : &a->o;
}

// Elements from one row to the next, where rows lie side by side.
static double width_of(const struct attention *a) { return (double)a->head_dim + a->pad; }

static int heads_of(const struct attention *a, int which) {
    return which == Q || which == O ? a->heads : a->kv_heads;
}
static int tokens_of(const struct attention *a, int which) {
    return which == Q || which == O ? a->seqlen_q : a->seqlen_k;
}

// ---------------------------------------------------------------- memory

double problem_bytes(const struct attention *a) {
    double lse = (double)a->batch * a->heads * a->seqlen_q * sizeof(float), all = lse, largest = 0;
    for (int i = 0; i < TENSORS; ++i) {
        double elements = (double)a->batch * heads_of(a, i) * tokens_of(a, i) * width_of(a);
        double bytes = elements * (double)dtype_bytes(a->dtype);
        all += bytes, largest = fmax(largest, bytes);
    }
    return all + largest + lse + reference_bytes(a);
}

int problem_fits(const struct attention *a, struct message *why) {
    double need = problem_bytes(a), memory = machine_memory_bytes();
    char need_text[32], memory_text[32];
    if (width_of(a) > INT32_MAX)
        return fail(why, "--dim %d and --pad %d make rows longer than %d elements; choose a smaller --pad.",
                    a->head_dim, a->pad, INT32_MAX);
    if (need > memory * USABLE_MEMORY)
        return fail(
            why,
            "This shape needs %s of host memory for inputs, outputs and reference, and the machine has "
            "%s; choose a smaller shape.",
            bytes_text(need, need_text), bytes_text(memory, memory_text));
    // A batch of none needs no memory, but its strides are products of the rest.
    double stride = fmax((double)a->heads * a->seqlen_q, (double)a->kv_heads * a->seqlen_k) * width_of(a);
    if (stride > 0x1p62)
        return fail(why,
                    "This shape has %.2g elements in one sequence, more than 64 bits can number; choose "
                    "a smaller shape.",
                    stride);
    return 0;
}

static int allocate(struct problem *p, struct message *why) {
    struct attention *a = &p->host;
    if (problem_fits(a, why) != 0) return -1;
    double need = problem_bytes(a);
    for (int i = 0; i < TENSORS; ++i) {
        p->bytes[i] = (size_t)a->batch * (size_t)heads_of(a, i) * (size_t)tokens_of(a, i) *
                      ((size_t)a->head_dim + (size_t)a->pad) * (size_t)dtype_bytes(a->dtype);
        void *data = malloc(p->bytes[i] ? p->bytes[i] : 1);
        *tensor_at(a, i) =
            tensor_view(data, p->layout[i], heads_of(a, i), tokens_of(a, i), a->head_dim + a->pad);
        if (!data) return fail(why, "There is no memory left for %.1f GB of inputs.", need / 1e9);
    }
    for (int i = 0; i < TENSORS && a->pad > 0; ++i) memset(tensor_at(a, i)->data, 0xff, p->bytes[i]);
    a->lse = malloc((size_t)a->batch * (size_t)a->heads * (size_t)a->seqlen_q * sizeof(float) + 1);
    return a->lse ? 0 : fail(why, "There is no memory left for %.1f GB of inputs.", need / 1e9);
}

void problem_free(struct problem *p) {
    for (int i = 0; i < TENSORS; ++i) free(tensor_at(&p->host, i)->data);
    free(p->host.lse);
    rows_free(&p->rows);
    reference_free(&p->reference);
    memset(p, 0, sizeof *p);
}

// Calls visit for each element in file order (batch, head, token, column): where it lies in memory, and in
// the file.
static void for_each(const struct attention *a, struct tensor t, int which,
                     void (*visit)(void *context, int64_t in_memory, int64_t in_file), void *context) {
    int64_t n = 0;
    for (int64_t b = 0; b < a->batch; ++b)
        for (int64_t h = 0; h < heads_of(a, which); ++h)
            for (int64_t s = 0; s < tokens_of(a, which); ++s) {
                int64_t row = b * t.stride_batch + h * t.stride_head + s * t.stride_row;
                for (int64_t c = 0; c < a->head_dim; ++c) visit(context, row + c, n++);
            }
}

struct copy {
    enum dtype from_type, to_type;
    const void *from;
    void *to;
    int inexact;          // some number changed on the way
    int overflowed;       // and a finite one became infinite: the first that did
    int64_t overflow_at;  // in file order
    double overflow_value;
};

static void load_element(void *context, int64_t in_memory, int64_t in_file) {
    struct copy *c = context;
    double value = number_load(c->from_type, c->from, in_file);
    number_store(c->to_type, c->to, in_memory, value);
    double stored = number_load(c->to_type, c->to, in_memory);
    c->inexact |= stored != value && !(isnan(stored) && isnan(value));
    if (isfinite(stored) || !isfinite(value) || c->overflowed) return;
    c->overflowed = 1, c->overflow_at = in_file, c->overflow_value = value;
}

static void save_element(void *context, int64_t in_memory, int64_t in_file) {
    struct copy *c = context;
    number_store(c->to_type, c->to, in_file, number_load(c->from_type, c->from, in_memory));
}

static void look_at_element(void *context, int64_t in_memory, int64_t in_file) {
    struct copy *c = context;
    (void)in_file;
    c->inexact |= !isfinite(number_load(c->from_type, c->from, in_memory));
}

static int all_finite(const struct attention *a, int which) {
    const struct tensor *t = tensor_at((struct attention *)a, which);
    struct copy look = {.from_type = a->dtype, .from = t->data};
    for_each(a, *t, which, look_at_element, &look);
    return !look.inexact;
}

int problem_gaps_intact(const struct problem *p) {
    const struct attention *a = &p->host;
    size_t element = (size_t)dtype_bytes(a->dtype), gap = (size_t)a->pad * element;
    size_t width = (size_t)a->head_dim * element + gap;
    // Of every layout: rows lie side by side, each with its gap behind it.
    for (size_t at = width; at <= p->bytes[O] && gap > 0; at += width) {
        const unsigned char *byte = (const unsigned char *)a->o.data + at - gap;
        if (byte[0] != 0xff || memcmp(byte, byte + 1, gap - 1) != 0) return 0;
    }
    return 1;
}

// ---------------------------------------------------------------- loading

static int path_in(const char *folder, const char *name, const char *suffix, char *path, size_t bytes,
                   struct message *why) {
    int length = snprintf(path, bytes, "%s/%s%s.npy", folder, name, suffix);
    if (length < 0 || (size_t)length >= bytes) return fail(why, "The path of %s is too long.", folder);
    return 0;
}

static int is_in(const char *folder, const char *name) {
    char path[1024];
    struct message too_long = {""};
    return path_in(folder, name, "", path, sizeof path, &too_long) == 0 && access(path, F_OK) == 0;
}

static int load_array(const char *folder, const char *name, int rank, int optional, struct npy *array,
                      struct message *why) {
    char path[1024];
    memset(array, 0, sizeof *array);
    if (path_in(folder, name, "", path, sizeof path, why) != 0) return -1;
    if (access(path, F_OK) != 0) {
        if (optional) return 0;
        return fail(why, "%s is missing; --load needs q.npy, k.npy and v.npy there.", path);
    }
    if (npy_read(path, array, why) != 0) return -1;
    if (array->dtype == DTYPE_FP64 && !optional) {
        npy_free(array);
        return fail(why,
                    "%s has dtype float64 ('f8'); q, k and v are read as float16 or float32: save it with "
                    ".astype(np.float32).",
                    path);
    }
    if (array->rank == rank) return 0;
    int found = array->rank;
    npy_free(array);
    return fail(why, "%s has %d dimensions; it needs %d: %s.", path, found, rank,
                rank == 4 ? "(batch, heads, seqlen, head_dim)" : "(batch, heads, seqlen)");
}

static void shape_text(const struct npy *array, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "(");
    for (int i = 0; i < array->rank && used < bytes; ++i)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, ")");
}

static int disagree(const char *left, const struct npy *l, const char *right, const struct npy *r,
                    const char *what, struct message *why) {
    char l_shape[128], r_shape[128];
    shape_text(l, l_shape, sizeof l_shape);
    shape_text(r, r_shape, sizeof r_shape);
    return fail(why, "%s.npy is %s and %s.npy is %s: these shapes disagree (%s).", left, l_shape, right,
                r_shape, what);
}

static int set_from_file(const char *option, int bit, unsigned given, int *size, int64_t in_file,
                         struct message *why) {
    if (in_file > INT32_MAX)
        return fail(why, "The files hold %lld for --%s; that is too large.", (long long)in_file, option);
    if ((given & (unsigned)bit) && *size != in_file)
        return fail(why, "--%s is %d, but the files hold %lld; leave the option out.", option, *size,
                    (long long)in_file);
    *size = (int)in_file;
    return 0;
}

static int shape_from_files(const struct options *o, const struct npy file[3], struct attention *a,
                            struct message *why) {
    const int64_t *q = file[Q].shape, *k = file[K].shape, *v = file[V].shape;
    if (memcmp(k, v, 4 * sizeof *k) != 0)
        return disagree("k", &file[K], "v", &file[V], "they must be equal", why);
    if (q[0] != k[0]) return disagree("q", &file[Q], "k", &file[K], "the batch (first) must be equal", why);
    if (q[3] != k[3]) return disagree("q", &file[Q], "k", &file[K], "the head_dim (last) must be equal", why);
    if (k[1] == 0 || q[1] == 0 || q[1] % k[1] != 0)
        return disagree("q", &file[Q], "k", &file[K], "the heads of q must be a multiple of those of k", why);
    if (q[3] == 0) return fail(why, "q.npy has head_dim 0; it must be at least 1.");
    if (o->sequences > 0) {
        if (q[0] != 1)
            return fail(why, "The files hold a batch of %lld; packed sequences (--seqlens) are a batch of 1.",
                        (long long)q[0]);
        if (q[2] != o->seqlen_q || k[2] != o->seqlen_k)
            return fail(why,
                        "--seqlens adds up to %d queries and %d keys, but the files hold %lld and %lld; "
                        "give the lengths that were packed there.",
                        o->seqlen_q, o->seqlen_k, (long long)q[2], (long long)k[2]);
    }
    a->batch = o->batch, a->heads = o->heads, a->kv_heads = o->kv_heads;
    a->seqlen_q = o->seqlen_q, a->seqlen_k = o->seqlen_k, a->head_dim = o->head_dim;
    if (set_from_file("batch", GIVEN_BATCH, o->given, &a->batch, q[0], why) != 0 ||
        set_from_file("heads", GIVEN_HEADS, o->given, &a->heads, q[1], why) != 0 ||
        set_from_file("kv-heads", GIVEN_KV_HEADS, o->given, &a->kv_heads, k[1], why) != 0 ||
        set_from_file("seqlen-q", GIVEN_SEQLEN_Q, o->given, &a->seqlen_q, q[2], why) != 0 ||
        set_from_file("seqlen-k", GIVEN_SEQLEN_K, o->given, &a->seqlen_k, k[2], why) != 0 ||
        set_from_file("dim", GIVEN_DIM, o->given, &a->head_dim, q[3], why) != 0)
        return -1;
    a->scale = o->given & GIVEN_SCALE ? o->scale : (float)(1 / sqrt(a->head_dim));
    return 0;
}

static int load_inputs(const struct options *o, struct problem *p, struct message *why) {
    struct stat info;
    if (stat(o->load, &info) != 0) {
        fail(why, "The folder %s of --load cannot be opened: %s.", o->load, strerror(errno));
        return -1;
    }
    if (!S_ISDIR(info.st_mode)) {
        fail(why, "%s is a file; --load takes the folder that holds q.npy, k.npy and v.npy.", o->load);
        return -1;
    }
    struct npy file[3];
    memset(file, 0, sizeof file);
    int status = 0;
    for (int i = Q; i <= V && status == 0; ++i)
        status = load_array(o->load, tensor_file[i], 4, 0, &file[i], why);
    if (status == 0) status = shape_from_files(o, file, &p->host, why);
    if (status == 0) status = allocate(p, why);
    for (int i = Q; i <= V && status == 0; ++i) {
        struct copy copy = {.from_type = file[i].dtype, .to_type = p->host.dtype, .from = file[i].data};
        copy.to = tensor_at(&p->host, i)->data;
        for_each(&p->host, *tensor_at(&p->host, i), i, load_element, &copy);
        p->inputs_rounded |= copy.inexact;
        if (!copy.overflowed) continue;
        int64_t n = copy.overflow_at, *shape = file[i].shape;
        status = fail(
            why,
            "%s/%s.npy holds %g at [%lld, %lld, %lld, %lld], and %s ends at %g: it would become infinite. "
            "Scale the numbers down before saving them.",
            o->load, tensor_file[i], copy.overflow_value, (long long)(n / shape[3] / shape[2] / shape[1]),
            (long long)(n / shape[3] / shape[2] % shape[1]), (long long)(n / shape[3] % shape[2]),
            (long long)(n % shape[3]), dtype_name(p->host.dtype), dtype_max_finite(p->host.dtype));
    }
    for (int i = Q; i <= V; ++i) npy_free(&file[i]);
    return status;
}

struct attention problem_shape(const struct options *o) {
    return (struct attention){.batch = o->batch,
                              .heads = o->heads,
                              .kv_heads = o->kv_heads,
                              .seqlen_q = o->seqlen_q,
                              .seqlen_k = o->seqlen_k,
                              .head_dim = o->head_dim,
                              .pad = o->pad,
                              .scale = o->scale,
                              .causal = o->causal,
                              .window = o->window,
                              .window_left = o->window_left,
                              .window_right = o->window_right,
                              .dtype = o->dtype,
                              .sequences = o->sequences,
                              .cu_seqlens_q = o->sequences ? o->cu_seqlens_q : NULL,
                              .cu_seqlens_k = o->sequences ? o->cu_seqlens_k : NULL};
}

int problem_make(const struct options *o, struct problem *p, struct message *why) {
    memset(p, 0, sizeof *p);
    struct attention *a = &p->host;
    *a = problem_shape(o);
    memcpy(p->layout, o->layout, sizeof p->layout);
    int status = o->load ? load_inputs(o, p, why) : allocate(p, why);
    if (status != 0) {
        problem_free(p);
        return -1;
    }
    if (!o->load) inputs_fill(o->inputs, o->seed, a);
    p->inputs_finite = all_finite(a, Q) && all_finite(a, K) && all_finite(a, V);
    return 0;
}

// ---------------------------------------------------------------- reference

// Puts the examined rows of a loaded array in the place of the computed values, after a look at whether
// it can be the answer to these inputs at all. Returns 1 if it was taken, 0 if there is no such file, -1
// with a sentence.
static int take_loaded(const struct options *o, struct problem *p, const char *name, int columns,
                       double *computed, const double *plain, double *roundoff, struct message *why) {
    const struct attention *a = &p->host;
    struct npy file;
    if (load_array(o->load, name, columns ? 4 : 3, 1, &file, why) != 0) return -1;
    if (!file.data) return 0;
    int64_t want[4] = {a->batch, a->heads, a->seqlen_q, columns}, width = columns ? columns : 1;
    if (memcmp(file.shape, want, (size_t)file.rank * sizeof *want) != 0) {
        struct npy q = {.rank = file.rank};
        memcpy(q.shape, want, sizeof want);
        int status = disagree(name, &file, "q", &q,
                              columns ? "o must be like q" : "lse must be like q without head_dim", why);
        npy_free(&file);
        return status;
    }
    // A framework that computed it in the storage type may be as far off as the plain implementation, twice
    // over: the bound that kernels have.
    struct comparison given = {.output = columns ? OUTPUT_O : OUTPUT_LSE,
                               .dtype = file.dtype,
                               .actual =
                                   tensor_view(file.data, LAYOUT_BHSD, a->heads, a->seqlen_q, (int)width),
                               .batch = a->batch,
                               .heads = a->heads,
                               .seqlen = a->seqlen_q,
                               .columns = (int)width,
                               .rows = &p->rows,
                               .expected = computed,
                               .plain = plain,
                               .facts = p->reference.facts,
                               .inputs_finite = p->inputs_finite};
    struct finding f = compare(&given);
    for (int64_t r = 0; r < p->rows.count; ++r)
        for (int64_t c = 0; c < width; ++c)
            computed[r * width + c] = number_load(file.dtype, file.data, rows_at(&p->rows, r) * width + c);
    *roundoff = dtype_unit_roundoff(file.dtype);
    npy_free(&file);
    char how[80] = "it has NaN or infinity where the reference has not, or the reverse";
    if (f.verdict == VERDICT_WRONG)
        snprintf(how, sizeof how, "it differs by %.3g from the reference (%.3g would pass)", f.err, f.bound);
    if (f.verdict == VERDICT_WRONG || f.verdict == VERDICT_NAN || f.verdict == VERDICT_UNWRITTEN)
        return fail(why,
                    "%s/%s.npy is not the answer to q, k, v there: %s. Was it made with the same --causal"
                    ", --scale, "
                    "--window and --seqlens? "
                    "Give them, or remove the file: it is computed then.",
                    o->load, name, how);
    return 1;
}

int problem_reference(const struct options *o, struct problem *p, struct message *why) {
    const struct attention *a = &p->host;
    if (rows_choose(a, REFERENCE_BUDGET, &p->rows) != 0 || reference_forward(a, &p->rows, &p->reference) != 0)
        return fail(why, "There is no memory left for the reference; choose a smaller shape.");
    // An answer to inputs that had to be rounded is the answer to other inputs: ours is the one
    // to check against.
    if (!o->load) return 0;
    if (p->inputs_rounded) {
        p->answer_ignored = is_in(o->load, "o") || is_in(o->load, "lse");
        return 0;
    }
    struct reference *r = &p->reference;
    int took = take_loaded(o, p, "o", a->head_dim, r->o, r->plain_o, &p->o_roundoff, why);
    if (took < 0) return -1;
    p->o_loaded = took;
    took = take_loaded(o, p, "lse", 0, r->lse, r->plain_lse, &p->lse_roundoff, why);
    if (took < 0) return -1;
    p->lse_loaded = took;
    return 0;
}

// ---------------------------------------------------------------- saving

static int save_tensor(const struct attention *a, int which, const char *folder, const char *suffix,
                       struct message *why) {
    // fp16 holds e4m3 and e5m2 exactly, fp32 holds bf16.
    enum dtype to = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_FP32 ? DTYPE_FP32 : DTYPE_FP16;
    int64_t shape[4] = {a->batch, heads_of(a, which), tokens_of(a, which), a->head_dim};
    size_t count = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
    char path[1024];
    if (path_in(folder, tensor_file[which], suffix, path, sizeof path, why) != 0) return -1;
    const struct tensor *t = tensor_at((struct attention *)a, which);
    struct copy copy = {.from_type = a->dtype, .to_type = to, .from = t->data};
    copy.to = malloc(count * (size_t)dtype_bytes(to) + 1);
    if (!copy.to) return fail(why, "There is no memory left to write %s.", path);
    for_each(a, *t, which, save_element, &copy);
    int status = npy_write(path, to, 4, shape, copy.to, why);
    free(copy.to);
    return status;
}

static int save_plain(const char *folder, const char *name, const char *suffix, enum dtype dtype,
                      const struct attention *a, int rank, const void *data, struct message *why) {
    int64_t shape[4] = {a->batch, a->heads, a->seqlen_q, a->head_dim};
    char path[1024];
    if (path_in(folder, name, suffix, path, sizeof path, why) != 0) return -1;
    return npy_write(path, dtype, rank, shape, data, why);
}

int problem_save(const struct problem *p, const char *folder, struct message *why) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail(why, "The folder %s of --save cannot be made: %s.", folder, strerror(errno));
    for (int i = Q; i <= V; ++i)
        if (save_tensor(&p->host, i, folder, "", why) != 0) return -1;
    if (!p->reference.o || p->rows.count != p->rows.total) return 0;
    if (save_plain(folder, "o", "", DTYPE_FP64, &p->host, 4, p->reference.o, why) != 0) return -1;
    return save_plain(folder, "lse", "", DTYPE_FP64, &p->host, 3, p->reference.lse, why);
}

int problem_save_result(const struct problem *p, const char *folder, const char *name, struct message *why) {
    char suffix[128];
    snprintf(suffix, sizeof suffix, "_%s", name);
    if (save_tensor(&p->host, O, folder, suffix, why) != 0) return -1;
    return save_plain(folder, "lse", suffix, DTYPE_FP32, &p->host, 3, p->host.lse, why);
}
