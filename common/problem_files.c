#define _DEFAULT_SOURCE
#include "problem_files.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Calls visit for each element in file order (batch, head, token, column): where it lies in memory, and in
// the file.
static void for_each(const struct attention *a, enum tensor_index which,
                     void (*visit)(void *context, int64_t in_memory, int64_t in_file), void *context) {
    const struct tensor *t = tensor_in(a, which);
    int64_t n = 0;
    for (int64_t b = 0; b < a->batch; ++b)
        for (int64_t h = 0; h < tensor_heads(a, which); ++h)
            for (int64_t s = 0; s < tensor_tokens(a, which); ++s) {
                int64_t row = b * t->stride_batch + h * t->stride_head + s * t->stride_row;
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
    size_t bytes = (size_t)dtype_bytes(c->to_type);
    if (c->from_type == c->to_type)  // NaN with all its bits: who reads it can tell what was never written
        memcpy((char *)c->to + (size_t)in_file * bytes, (const char *)c->from + (size_t)in_memory * bytes,
               bytes);
    else
        number_store(c->to_type, c->to, in_file, number_load(c->from_type, c->from, in_memory));
}

// ---------------------------------------------------------------- reading

static int path_in(const char *folder, const char *name, const char *suffix, char *path, size_t bytes,
                   struct message *why) {
    int length = snprintf(path, bytes, "%s/%s%s.npy", folder, name, suffix);
    if (length < 0 || (size_t)length >= bytes) return fail(why, "The path of %s is too long.", folder);
    return 0;
}

int files_have(const char *folder, const char *name) {
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

static int shape_from_files(const struct options *o, const struct npy *file, struct attention *a,
                            struct message *why) {
    const int64_t *q = file[TENSOR_Q].shape, *k = file[TENSOR_K].shape, *v = file[TENSOR_V].shape;
    if (memcmp(k, v, 4 * sizeof *k) != 0)
        return disagree("k", &file[TENSOR_K], "v", &file[TENSOR_V], "they must be equal", why);
    if (q[0] != k[0])
        return disagree("q", &file[TENSOR_Q], "k", &file[TENSOR_K], "the batch (first) must be equal", why);
    if (q[3] != k[3])
        return disagree("q", &file[TENSOR_Q], "k", &file[TENSOR_K], "the head_dim (last) must be equal", why);
    if (k[1] == 0 || q[1] == 0 || q[1] % k[1] != 0)
        return disagree("q", &file[TENSOR_Q], "k", &file[TENSOR_K],
                        "the heads of q must be a multiple of those of k", why);
    if (q[3] == 0) return fail(why, "q.npy has head_dim 0; it must be at least 1.");
    if (file[TENSOR_DO].data && memcmp(file[TENSOR_DO].shape, q, 4 * sizeof *q) != 0)
        return disagree("do", &file[TENSOR_DO], "q", &file[TENSOR_Q], "do must be like q", why);
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

static int open_folder(const char *folder, struct message *why) {
    struct stat info;
    if (stat(folder, &info) != 0)
        return fail(why, "The folder %s of --load cannot be opened: %s.", folder, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return fail(why, "%s is a file; --load takes the folder that holds q.npy, k.npy and v.npy.", folder);
    return 0;
}

int files_read(const struct options *o, struct npy file[INPUT_FILES], struct problem *p,
               struct message *why) {
    memset(file, 0, INPUT_FILES * sizeof *file);
    if (open_folder(o->load, why) != 0) return -1;
    for (int i = TENSOR_Q; i < INPUT_FILES; ++i)
        if (tensor_exists(i, p->backward) &&
            load_array(o->load, tensor_file(i), 4, i == TENSOR_DO, &file[i], why) != 0)
            return -1;
    return shape_from_files(o, file, &p->host, why);
}

void files_free(struct npy file[INPUT_FILES]) {
    for (int i = 0; i < INPUT_FILES; ++i) npy_free(&file[i]);
}

int files_copy(const struct options *o, const struct npy file[INPUT_FILES], struct problem *p,
               struct message *why) {
    for (int i = TENSOR_Q; i < INPUT_FILES; ++i) {
        struct copy copy = {.from_type = file[i].dtype, .to_type = p->host.dtype, .from = file[i].data};
        if (!file[i].data) continue;
        copy.to = tensor_at(&p->host, i)->data;
        for_each(&p->host, i, load_element, &copy);
        *(i == TENSOR_DO ? &p->d_o_rounded : &p->inputs_rounded) |= copy.inexact;
        if (!copy.overflowed) continue;
        int64_t n = copy.overflow_at;
        const int64_t *shape = file[i].shape;
        return fail(
            why,
            "%s/%s.npy holds %g at [%lld, %lld, %lld, %lld], and %s ends at %g: it would become infinite. "
            "Scale the numbers down before saving them.",
            o->load, tensor_file(i), copy.overflow_value, (long long)(n / shape[3] / shape[2] / shape[1]),
            (long long)(n / shape[3] / shape[2] % shape[1]), (long long)(n / shape[3] % shape[2]),
            (long long)(n % shape[3]), dtype_name(p->host.dtype), dtype_max_finite(p->host.dtype));
    }
    return 0;
}

int files_take(const char *folder, const char *name, const char *like, const struct comparison *as,
               double *computed, double *roundoff, struct message *why) {
    int is_lse = as->output == OUTPUT_LSE, of_backward = as->output != OUTPUT_O && !is_lse;
    struct npy file;
    if (load_array(folder, name, is_lse ? 3 : 4, 1, &file, why) != 0) return -1;
    if (!file.data) return 0;
    int64_t want[4] = {as->batch, as->heads, as->seqlen, as->columns}, columns = as->columns;
    if (memcmp(file.shape, want, (size_t)file.rank * sizeof *want) != 0) {
        struct npy other = {.rank = file.rank};
        char must_be[64];
        memcpy(other.shape, want, sizeof want);
        snprintf(must_be, sizeof must_be, "%s must be like %s%s", name, like,
                 is_lse ? " without head_dim" : "");
        int status = disagree(name, &file, like, &other, must_be, why);
        npy_free(&file);
        return status;
    }
    // A framework that computed it in the storage type may be as far off as the plain implementation, twice
    // over: the bound that kernels have.
    struct comparison given = *as;
    given.dtype = file.dtype, given.expected_roundoff = 0, given.has_signal = 0;
    given.actual = tensor_view(file.data, LAYOUT_BHSD, as->heads, as->seqlen, as->columns);
    struct finding f = compare(&given);
    for (int64_t r = 0; r < as->rows->count; ++r)
        for (int64_t c = 0; c < columns; ++c)
            computed[r * columns + c] =
                number_load(file.dtype, file.data, rows_at(as->rows, r) * columns + c);
    *roundoff = dtype_unit_roundoff(file.dtype);
    npy_free(&file);
    char how[80] = "it has NaN or infinity where the reference has not, or the reverse";
    if (f.verdict == VERDICT_WRONG)
        snprintf(how, sizeof how, "it differs by %.3g from the reference (%.3g would pass)", f.err, f.bound);
    if (f.verdict == VERDICT_WRONG || f.verdict == VERDICT_NAN || f.verdict == VERDICT_UNWRITTEN)
        return fail(why,
                    "%s/%s.npy is not the answer to %s there: %s. Was it made with the same --causal"
                    ", --scale, "
                    "--window and --seqlens? "
                    "Give them, or remove the file: it is computed then.",
                    folder, name, of_backward ? "q, k, v, do" : "q, k, v", how);
    return 1;
}

// ---------------------------------------------------------------- writing

static int save_tensor(const struct attention *a, enum tensor_index which, const char *folder,
                       const char *suffix, struct message *why) {
    // fp16 holds e4m3 and e5m2 exactly, fp32 holds bf16.
    enum dtype to = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_FP32 ? DTYPE_FP32 : DTYPE_FP16;
    int64_t shape[4] = {a->batch, tensor_heads(a, which), tensor_tokens(a, which), a->head_dim};
    size_t count = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
    char path[1024];
    if (path_in(folder, tensor_file(which), suffix, path, sizeof path, why) != 0) return -1;
    struct copy copy = {.from_type = a->dtype, .to_type = to, .from = tensor_in(a, which)->data};
    copy.to = malloc(count * (size_t)dtype_bytes(to) + 1);
    if (!copy.to) return fail(why, "There is no memory left to write %s.", path);
    for_each(a, which, save_element, &copy);
    int status = npy_write(path, to, 4, shape, copy.to, why);
    free(copy.to);
    return status;
}

// Numbers that lie in the order of the file already: shaped like tensor `which`, the first `rank` dimensions.
static int save_plain(const char *folder, const char *name, const char *suffix, enum dtype dtype,
                      const struct attention *a, enum tensor_index which, int rank, const void *data,
                      struct message *why) {
    int64_t shape[4] = {a->batch, tensor_heads(a, which), tensor_tokens(a, which), a->head_dim};
    char path[1024];
    if (path_in(folder, name, suffix, path, sizeof path, why) != 0) return -1;
    return npy_write(path, dtype, rank, shape, data, why);
}

int problem_save(const struct problem *p, const char *folder, struct message *why) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return fail(why, "The folder %s of --save cannot be made: %s.", folder, strerror(errno));
    for (int i = TENSOR_Q; i < INPUT_FILES; ++i)
        if (tensor_exists(i, p->backward) && save_tensor(&p->host, i, folder, "", why) != 0) return -1;
    if (!p->reference.o || p->rows.count != p->rows.total) return 0;
    if (save_plain(folder, "o", "", DTYPE_FP64, &p->host, TENSOR_O, 4, p->reference.o, why) != 0) return -1;
    return save_plain(folder, "lse", "", DTYPE_FP64, &p->host, TENSOR_O, 3, p->reference.lse, why);
}

int problem_save_gradients(const struct problem *p, const char *folder, struct message *why) {
    for (int i = 0; i < GRADIENTS; ++i) {
        const struct gradient *g = &p->gradients[i];
        enum tensor_index which = gradient_tensor(i);
        if (g->exact && g->rows.count == g->rows.total &&
            save_plain(folder, tensor_file(which), "", DTYPE_FP64, &p->host, which, 4, g->exact, why) != 0)
            return -1;
    }
    return 0;
}

int problem_save_result(const struct problem *p, const struct kernel *kernel, const char *folder,
                        struct message *why) {
    char suffix[128];
    snprintf(suffix, sizeof suffix, "_%s", kernel->name);
    for (int i = TENSOR_O; i < TENSORS; ++i)
        if (tensor_exists(i, kernel->forward != NULL) && save_tensor(&p->host, i, folder, suffix, why) != 0)
            return -1;
    return save_plain(folder, "lse", suffix, DTYPE_FP32, &p->host, TENSOR_O, 3, p->host.lse, why);
}

// The inverse of save_element, to the bit: fp32 that holds bf16 has it in its upper half.
static void take_element(void *context, int64_t in_memory, int64_t in_file) {
    struct copy *c = context;
    size_t bytes = (size_t)dtype_bytes(c->to_type);
    char *to = (char *)c->to + (size_t)in_memory * bytes;
    uint32_t wide;
    uint16_t narrow;
    if (c->from_type == c->to_type) {
        memcpy(to, (const char *)c->from + (size_t)in_file * bytes, bytes);
    } else if (c->to_type == DTYPE_BF16) {
        memcpy(&wide, (const char *)c->from + (size_t)in_file * sizeof wide, sizeof wide);
        narrow = (uint16_t)(wide >> 16);
        memcpy(to, &narrow, sizeof narrow);
    } else {
        number_store(c->to_type, c->to, in_memory, number_load(c->from_type, c->from, in_file));
    }
}

// NAME_KERNEL.npy, if it is like tensor `which`, without head_dim if rank is 3.
static int load_result(const struct attention *a, enum tensor_index which, int rank, const char *folder,
                       const char *name, enum dtype dtype, struct npy *file, struct message *why) {
    int64_t shape[4] = {a->batch, tensor_heads(a, which), tensor_tokens(a, which), a->head_dim};
    if (load_array(folder, name, rank, 1, file, why) != 0) return -1;
    if (!file->data) {
        fail(why, "%s/%s.npy is not there.", folder, name);
        return -1;
    }
    if (file->dtype == dtype && memcmp(file->shape, shape, (size_t)rank * sizeof *shape) == 0) return 0;
    npy_free(file);
    return fail(why, "%s/%s.npy is of another shape or type than the problem.", folder, name);
}

int problem_load_result(struct problem *p, const char *kernel, int backward, const char *folder,
                        struct message *why) {
    struct attention *a = &p->host;
    enum dtype dtype = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_FP32 ? DTYPE_FP32 : DTYPE_FP16;
    struct npy file;
    char name[128];
    for (int i = TENSOR_O; i < TENSORS; ++i) {
        if (!tensor_exists(i, backward)) continue;
        snprintf(name, sizeof name, "%s_%.100s", tensor_file(i), kernel);
        if (load_result(a, i, 4, folder, name, dtype, &file, why) != 0) return -1;
        struct copy copy = {.from_type = dtype, .to_type = a->dtype, .from = file.data};
        copy.to = tensor_at(a, i)->data;
        memset(copy.to, 0xff, p->bytes[i]);
        for_each(a, i, take_element, &copy);
        npy_free(&file);
    }
    snprintf(name, sizeof name, "lse_%.100s", kernel);
    if (load_result(a, TENSOR_O, 3, folder, name, DTYPE_FP32, &file, why) != 0) return -1;
    memcpy(a->lse, file.data, (size_t)query_count(a) * sizeof *a->lse);
    npy_free(&file);
    return 0;
}
