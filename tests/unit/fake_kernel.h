// fake_kernel.h - "kernels" for tests of lab_main: they get the right answer from the reference and carry it
// to the device, where the test plants a fault.
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include "common/device.h"
#include "common/problem.h"

#include "unit.h"

static int launches;              // of right and right_backward since run_lab began
static char last_report[100000];  // what run_lab read

static void to_host(void *host, const void *device, size_t bytes) {
    if (bytes) CUDA_CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}
static void to_device(void *device, const void *host, size_t bytes) {
    if (bytes) CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}
static void *copy_of(const void *device, size_t bytes) {
    void *memory = malloc(bytes + 1);
    if (!memory) exit(LAB_USAGE);
    to_host(memory, device, bytes);
    return memory;
}
static size_t bytes_of(const struct attention *a, enum tensor_index which) {
    return (size_t)tensor_bytes(a, which);
}
static size_t lse_bytes(const struct attention *a) { return (size_t)query_count(a) * 4; }

// What a kernel was given, copied to the host; the gaps of --pad, too. Freed by drop.
static struct attention mirror(struct attention a) {
    struct attention h = a;
    size_t sums = ((size_t)a.sequences + 1) * sizeof(int);
    for (int i = 0; i < TENSORS; ++i)
        if (tensor_in(&a, i)->data) tensor_at(&h, i)->data = copy_of(tensor_in(&a, i)->data, bytes_of(&a, i));
    h.lse = copy_of(a.lse, lse_bytes(&a));
    if (a.sequences) h.cu_seqlens_q = copy_of(a.cu_seqlens_q, sums);
    if (a.sequences) h.cu_seqlens_k = copy_of(a.cu_seqlens_k, sums);
    return h;
}
static void drop(struct attention h) {
    for (int i = 0; i < TENSORS; ++i) free(tensor_at(&h, i)->data);
    free(h.lse);
    if (h.sequences) free((int *)h.cu_seqlens_q), free((int *)h.cu_seqlens_k);
}

// Rounds values [batch][heads][tokens][head_dim] into a tensor of the mirror and carries it to the device.
static void carry(struct attention a, const struct attention *h, enum tensor_index which,
                  const double *values) {
    const struct tensor *t = tensor_in(h, which);
    for (int64_t b = 0; b < a.batch; ++b)
        for (int64_t n = 0; n < tensor_heads(h, which); ++n)
            for (int64_t i = 0; i < tensor_tokens(h, which); ++i)
                for (int64_t c = 0; c < a.head_dim; ++c)
                    number_store(a.dtype, t->data,
                                 b * t->stride_batch + n * t->stride_head + i * t->stride_row + c, *values++);
    to_device(tensor_in(&a, which)->data, t->data, bytes_of(h, which));
}

// A forward pass.
static void right(struct attention a) {
    struct attention h = mirror(a);
    struct rows rows;
    struct reference r;
    ++launches;
    if (rows_choose(&h, INFINITY, &rows) != 0 || reference_forward(&h, &rows, &r) != 0) exit(LAB_USAGE);
    carry(a, &h, TENSOR_O, r.o);
    for (int64_t row = 0; row < rows.count; ++row) h.lse[row] = (float)r.lse[row];
    to_device(a.lse, h.lse, lse_bytes(&a));
    reference_free(&r);
    rows_free(&rows);
    drop(h);
}

// A backward pass. It needs nothing but the inputs.
static inline void right_backward(struct attention a) {
    struct attention h = mirror(a);
    struct gradient gradients[GRADIENTS];
    ++launches;
    if (gradients_make(&h, INFINITY, gradients) != 0) exit(LAB_USAGE);
    for (int i = 0; i < GRADIENTS; ++i) carry(a, &h, gradient_tensor(i), gradients[i].exact);
    gradients_free(gradients);
    drop(h);
}

// Runs lab_main on this command line, with a report in `json`, in which `says` must stand. (No report, if
// that is null.)
static inline void run_lab(const struct lab *lab, char *json, const char *line, int code, const char *says) {
    static char copy[1024], program[] = "lab_test", option[] = "--json";
    char *argv[32] = {program, option, json};
    int argc = json ? 3 : 1;
    if (json) remove(json);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    launches = 0;
    int got = lab_main(argc, argv, lab);
    EXPECT(got == code);
    if (got != code) printf("  that was: %s, exit code %d\n", line, got);
    if (!json || !says) return;
    FILE *file = fopen(json, "r");
    last_report[file ? fread(last_report, 1, sizeof last_report - 1, file) : 0] = '\0';
    if (file) fclose(file);
    EXPECT_SAYS(last_report, says);
}

#endif
