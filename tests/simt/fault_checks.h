// fault_checks.h - what a launch with a planted fault must leave behind; for tests that run each kernel once.
// The test defines SOURCE_NAME, its .cu as messages name it.
#ifndef FAULT_CHECKS_H
#define FAULT_CHECKS_H

#include <cuda_runtime.h>
#include <string.h>

#include "check.h"
#include "fault_capture.h"

#define OK(call) CHECK((call) == cudaSuccess)

// The launch since begin_capture must have left this error, and a message with these words. `line`, unless 0,
// must stand in it as SOURCE_NAME:LINE.
static void check_fault(cudaError_t error, int line, const char *words, const char *who) {
    end_capture();
    cudaError_t got = cudaDeviceSynchronize();
    if (got == cudaSuccess) got = cudaGetLastError();
    char position[64];
    snprintf(position, sizeof position, SOURCE_NAME ":%d", line);
    int ok = CHECK(got == error);
    ok &= CHECK(strstr(message, words) != nullptr);
    ok &= CHECK(line == 0 || strstr(message, position) != nullptr);
    ok &= CHECK(strstr(message, who) != nullptr);
    if (!ok)
        fprintf(stderr, "wanted error %d, '%s', %s, '%s'; got error %d and:\n%s", error, words, position, who,
                got, message);
    if (error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure) {
        // A broken context stays broken.
        void *unused;
        CHECK(cudaMemset(nullptr, 0, 4) == error);
        CHECK(cudaMemcpy(&unused, &unused, 1, cudaMemcpyHostToHost) == error);
        CHECK(cudaGetLastError() == error && cudaGetLastError() == error);
    }
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
}

static void check_silent(void) {
    end_capture();
    CHECK(message[0] == 0);
    if (message[0]) fprintf(stderr, "wanted silence, got:\n%s", message);
    OK(cudaDeviceSynchronize());
}

#endif
