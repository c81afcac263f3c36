// goldens_test.c - are common/reference.c and common/backward.c right? Checks them against the values that
// make_goldens.py computed with NumPy in float64, another language and other formulas: O, LSE, dQ, dK and dV
// of every case in goldens.txt.
//
//     goldens_test FOLDER        the folder of goldens.txt
//
// Then it tests itself: with one golden value changed in the ninth digit, or NaN in its place, each
// comparison must fail. Exit 0 or 1.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/backward.h"
#include "common/npy.h"

// Both sides work in double; what remains is the order of additions and one exp of difference. Relative to
// the largest value of the tensor.
static const double TOLERANCE = 1e-12;

static int failures;

__attribute__((noreturn)) static void stop(const char *what) {
    fprintf(stderr, "goldens_test: %s\n", what);
    exit(1);
}

static struct npy read_golden(const char *folder, const char *name, const char *tensor, enum dtype dtype) {
    char path[4096];
    struct message why = {""};
    struct npy array;
    snprintf(path, sizeof path, "%s/%s/%s.npy", folder, name, tensor);
    if (npy_read(path, &array, &why) != 0) stop(why.text);
    if (array.dtype != dtype) stop("a golden file has another type than make_goldens.py writes");
    return array;
}

// The first element where got is not golden, or -1. Minus infinity equals itself alone, NaN equals nothing.
static int64_t first_difference(const double *got, const double *golden, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(golden[i]) && fabs(golden[i]) > largest) largest = fabs(golden[i]);
    for (int64_t i = 0; i < count; i++) {
        int same = isinf(golden[i]) ? got[i] == golden[i] : fabs(got[i] - golden[i]) <= TOLERANCE * largest;
        if (!same) return i;
    }
    return -1;
}

// Compares one tensor, then shows that the comparison would have noticed a wrong golden value.
static void check(const char *name, const char *tensor, const double *got, int64_t got_count,
                  const struct npy *golden) {
    double *values = golden->data;
    if (got_count != golden->count) {
        printf("%s %s: %lld values, the golden file has %lld\n", name, tensor, (long long)got_count,
               (long long)golden->count);
        failures++;
        return;
    }
    int64_t at = first_difference(got, values, golden->count);
    if (at >= 0) {
        printf("%s %s[%lld]: reference %.17g, NumPy %.17g\n", name, tensor, (long long)at, got[at],
               values[at]);
        failures++;
        return;
    }
    double largest = 0;
    for (int64_t i = 0; i < golden->count; i++)
        if (isfinite(values[i]) && fabs(values[i]) > largest) largest = fabs(values[i]);
    for (int64_t i = 0; i < golden->count; i++) {
        double right = values[i];
        const double wrong[] = {isinf(right) ? 0 : right + 1e-9 * (largest > 0 ? largest : 1), NAN, INFINITY};
        for (int n = 0; n < 3; n++) {
            values[i] = wrong[n];
            if (first_difference(got, values, golden->count) != i) {
                printf("%s %s[%lld]: a planted %g in place of %g was not noticed\n", name, tensor,
                       (long long)i, wrong[n], right);
                failures++;
            }
        }
        values[i] = right;
    }
}

static struct tensor view(const struct npy *array) {
    int64_t heads = array->shape[1], tokens = array->shape[2], dim = array->shape[3];
    return (struct tensor){array->data, heads * tokens * dim, tokens * dim, dim};
}

// "3,0,5": the prefix sums of these lengths; returns how many they are, 0 for "-".
static int prefix_sums(const char *lengths, int *sums, int room) {
    int n = 0;
    char *end;
    sums[0] = 0;
    if (strcmp(lengths, "-") == 0) return 0;
    for (;; lengths = end + 1) {
        if (++n == room) stop("goldens.txt has more sequences than there is room for");
        sums[n] = sums[n - 1] + (int)strtol(lengths, &end, 10);
        if (*end == '\0') return n;
        if (*end != ',' || end == lengths) stop("goldens.txt has lengths that are not: 3,0,5");
    }
}

// A line of goldens.txt.
struct line {
    char name[64];
    int causal, left, right;
    float scale;
    char seqlens_q[64], seqlens_k[64];
};

// Returns how many values were compared.
static int64_t check_case(const char *folder, const struct line *line) {
    enum { ROOM = 20 };
    int cu_q[ROOM], cu_k[ROOM];
    const char *name = line->name;
    struct npy q = read_golden(folder, name, "q", DTYPE_FP16), k = read_golden(folder, name, "k", DTYPE_FP16);
    struct npy v = read_golden(folder, name, "v", DTYPE_FP16),
               d_o = read_golden(folder, name, "do", DTYPE_FP16);
    struct npy o = read_golden(folder, name, "o", DTYPE_FP64),
               lse = read_golden(folder, name, "lse", DTYPE_FP64);
    struct npy dq = read_golden(folder, name, "dq", DTYPE_FP64),
               dk = read_golden(folder, name, "dk", DTYPE_FP64);
    struct npy dv = read_golden(folder, name, "dv", DTYPE_FP64);

    const struct attention a = {
        .q = view(&q),
        .k = view(&k),
        .v = view(&v),
        .d_o = view(&d_o),
        .batch = (int)q.shape[0],
        .heads = (int)q.shape[1],
        .kv_heads = (int)k.shape[1],
        .seqlen_q = (int)q.shape[2],
        .seqlen_k = (int)k.shape[2],
        .head_dim = (int)q.shape[3],
        .scale = line->scale,
        .causal = line->causal,
        .window = line->left != NO_LIMIT || line->right != NO_LIMIT,
        .window_left = line->left,
        .window_right = line->right,
        .dtype = DTYPE_FP16,
        .sequences = prefix_sums(line->seqlens_q, cu_q, ROOM),
        .cu_seqlens_q = cu_q,
        .cu_seqlens_k = cu_k,
    };
    if (prefix_sums(line->seqlens_k, cu_k, ROOM) != a.sequences)
        stop("goldens.txt has unequal lists of lengths");
    if (a.sequences && (cu_q[a.sequences] != a.seqlen_q || cu_k[a.sequences] != a.seqlen_k))
        stop("goldens.txt has lengths that do not add up to what the files hold");
    struct rows rows;
    struct reference reference;
    if (rows_choose(&a, REFERENCE_BUDGET, &rows) != 0 || reference_forward(&a, &rows, &reference) != 0)
        stop("no memory");
    check(name, "o", reference.o, rows.count * a.head_dim, &o);
    check(name, "lse", reference.lse, rows.count, &lse);
    reference_free(&reference);
    rows_free(&rows);

    struct gradient gradients[GRADIENTS];
    if (gradients_make(&a, INFINITY, gradients) != 0) stop("no memory");
    check(name, "dq", gradients[GRADIENT_Q].exact, gradients[GRADIENT_Q].rows.count * a.head_dim, &dq);
    check(name, "dk", gradients[GRADIENT_K].exact, gradients[GRADIENT_K].rows.count * a.head_dim, &dk);
    check(name, "dv", gradients[GRADIENT_V].exact, gradients[GRADIENT_V].rows.count * a.head_dim, &dv);
    gradients_free(gradients);

    int64_t compared = o.count + lse.count + dq.count + dk.count + dv.count;
    struct npy *all[] = {&q, &k, &v, &d_o, &o, &lse, &dq, &dk, &dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) npy_free(all[i]);
    return compared;
}

int main(int argc, char **argv) {
    if (argc != 2) stop("usage: goldens_test FOLDER");
    char path[4096], text[256];
    snprintf(path, sizeof path, "%s/goldens.txt", argv[1]);
    FILE *list = fopen(path, "r");
    if (!list) stop("cannot read goldens.txt in the folder given");
    int64_t cases = 0, compared = 0;
    while (fgets(text, sizeof text, list)) {
        struct line line;
        if (text[0] == '#') continue;
        if (sscanf(text, "%63s %d %f %d %d %63s %63s", line.name, &line.causal, &line.scale, &line.left,
                   &line.right, line.seqlens_q, line.seqlens_k) != 7)
            stop("goldens.txt has a line that is not as its first line says");
        compared += check_case(argv[1], &line);
        cases++;
    }
    fclose(list);
    if (compared == 0) stop("nothing was compared");
    printf("%lld cases, %lld values compared, %d failures\n", (long long)cases, (long long)compared,
           failures);
    return failures != 0;
}
