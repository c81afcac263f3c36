// case.h - one case on the device: its tensors there, each between guard bands, and launches of a kernel on
// them. What becomes of the results is for check.h.
#ifndef CASE_H
#define CASE_H

#include "device.h"
#include "options.h"
#include "problem.h"

struct device_case {
    struct problem problem;  // on the host; problem.host.o and lse are what the last launch left
    struct buffer q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k;
    struct buffer workspace;  // of the kernel at hand: who runs the kernel makes and frees it
    struct attention on_device;
    double left;  // bytes of device memory for workspace
    int counted;  // 1: Nsight Compute, where the program runs under it, counts the launch
    const struct device *device;
    const struct options *options;
};

// Makes the case on the host and carries it to the device. Returns 0, or -1 with a sentence.
int case_make(struct device_case *c, const struct options *options, const struct device *device,
              struct message *why);
void case_free(struct device_case *c);

// The buffers of a case, the inputs first; and what the inputs are copied from. Without packed sequences
// there are no cu_seqlens: null pointers and no bytes.
enum { INPUT_BUFFERS = 5, BUFFERS = 8 };
struct buffer *case_buffer(struct device_case *c, int i);
const void *case_input(const struct device_case *c, int i);

// Fills the outputs on the device with NaN; fetches them to problem.host.
void case_poison(const struct device_case *c);
void case_download(struct device_case *c);

// Runs the kernel once into outputs and workspace that hold nothing but NaN, and fetches the outputs.
void case_launch(struct device_case *c, const struct kernel *kernel);

#endif
