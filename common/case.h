// case.h - one case on the device: its tensors there, each between guard bands, and launches of a kernel on
// them. What becomes of the results is for check.h.
#ifndef CASE_H
#define CASE_H

#include "device.h"
#include "options.h"
#include "problem.h"

// Arrays on the device by number: the tensors as in tensors.h, then these. An array that a case has not (the
// gradients of a forward pass, cu_seqlens without packed sequences) has neither data nor bytes.
enum {
    BUFFER_LSE = TENSORS,
    BUFFER_CU_SEQLENS_Q,
    BUFFER_CU_SEQLENS_K,
    BUFFER_WORKSPACE,  // of the kernel at hand: who runs the kernel makes and frees it
    BUFFER_TRACE,      // of a traced launch, likewise
    BUFFERS
};

struct device_case {
    struct problem problem;  // on the host; the results in problem.host are what the last launch left
    struct buffer buffer[BUFFERS];
    struct attention on_device;
    double left;  // bytes of device memory for workspace
    int runs;     // of the kernel at hand: how often case_begin was called for it
    int counted;  // 1: Nsight Compute, where the program runs under it, counts the launch
    void (*gradients_after)(struct attention a);  // the forward pass that problem.gradients were made after
    const struct device *device;
    const struct options *options;
};

// Makes the case on the host and carries it to the device. Returns 0, or -1 with a sentence.
int case_make(struct device_case *c, const struct options *options, const struct device *device,
              struct message *why);
void case_free(struct device_case *c);

// Where the host keeps what is in buffer i: what it was copied from, or is fetched to. Null for workspace and
// trace.
void *case_host(const struct device_case *c, int i);

// Carries an input to the device once more.
void case_upload(const struct device_case *c, int i);

// Whether the kernel has anything to compute. Where it has not, nothing is launched: a grid of no blocks
// would be an error. (Without queries, dK and dV of the keys are still to be set to 0.)
int case_has_work(const struct device_case *c, const struct kernel *kernel);

// What comes before a launch: results and workspace are filled with NaN, and in every other run the workspace
// with numbers (bytes 0x40, in fp32 about 3): a sum that nobody began at 0 is wrong in one of two runs, even
// if the kernel takes a NaN in it for one of the inputs' and works the sum out again. Before a backward pass
// the forward pass then leaves O and LSE there, which are fetched.
void case_begin(struct device_case *c, const struct kernel *kernel);

// Runs the kernel's launch once and fetches its results: O and LSE, or dQ, dK and dV.
void case_launch(struct device_case *c, const struct kernel *kernel);
void case_fetch(struct device_case *c, const struct kernel *kernel);

#endif
