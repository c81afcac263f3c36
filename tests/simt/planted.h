// planted.h - for the tests of asynchronous bugs: a kernel with a planted bug must be reported under each of
// 20 schedules, by the right words with the right lines; the same kernel without it must be silent and right.
//
// A bug may show in more than one way: a thread that did not wait finds the bytes still in flight if it comes
// early, and if it comes late they are there by luck and only the race detector knows. All ways that are
// right are listed, each with the lines that it must name.
#ifndef PLANTED_H
#define PLANTED_H

#include <cuda_runtime.h>
#include <string.h>

#include <initializer_list>

#include "check.h"
#include "fault_capture.h"

constexpr unsigned long long schedules = 20;  // in order, reversed, and 18 random ones

// One way in which a bug may show: these words in the message, and these lines of the source (0: none).
struct symptom {
    const char *words;
    int first, second;
};

static const char *source_name = "";  // of the test's .cu, as messages name it
static bool show_messages = false;    // what each bug's first schedule says, for a reader to judge

static bool says_line(int line) {
    char text[128];
    snprintf(text, sizeof text, "%s:%d", source_name, line);
    for (const char *at = message; line && (at = strstr(at, text)) != nullptr; at++)
        if (at[strlen(text)] < '0' || at[strlen(text)] > '9') return true;
    return line == 0;
}

static bool shows(const symptom &it) {
    return strstr(message, it.words) && says_line(it.first) && says_line(it.second);
}

// `launch` has the planted bug `name`.
template <class Launch>
static void planted(const char *name, Launch launch, std::initializer_list<symptom> symptoms) {
    int told = 0;
    for (unsigned long long schedule = 0; schedule < schedules; schedule++) {
        simt_set_schedule(schedule);
        begin_capture();
        launch();
        end_capture();
        bool stopped = cudaDeviceSynchronize() != cudaSuccess, found = false;
        for (const symptom &it : symptoms) found = found || shows(it);
        if (show_messages && schedule == 0) printf("---- %s\n%s", name, message);
        // A race is counted, a fault breaks the context.
        bool counted = simt_take_races() > 0;
        if (!CHECK(found && (stopped || counted)) && ++told <= 1) {
            fprintf(stderr, "  %s, schedule %llu: wanted one of", name, schedule);
            for (const symptom &it : symptoms)
                fprintf(stderr, " '%s' at %d and %d;", it.words, it.first, it.second);
            fprintf(stderr, " got:\n%s", message);
        }
        CHECK(cudaDeviceReset() == cudaSuccess && cudaGetLastError() == cudaSuccess);
    }
}

// `launch` has no bug, and leaves in `out` what `expected` says, float by float; also without the race
// detector.
template <class Launch, class Expected>
static void silent(const char *name, Launch launch, float *out, int count, Expected expected) {
    static float host[4096];
    int told = 0;
    for (unsigned long long schedule = 0; schedule <= schedules; schedule++) {
        simt_set_schedule(schedule);
        simt_set_sanitizing(schedule < schedules);
        CHECK(cudaMemset(out, 0xff, (size_t)count * sizeof *out) == cudaSuccess);  // NaN
        begin_capture();
        launch();
        end_capture();
        int ok = CHECK(cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess);
        ok &= CHECK(simt_take_races() == 0);
        ok &= CHECK(message[0] == 0);
        int wrong = 0;
        if (cudaMemcpy(host, out, (size_t)count * sizeof *out, cudaMemcpyDeviceToHost) != cudaSuccess)
            wrong = count;
        for (int i = 0; i < count && wrong < count; i++) wrong += !(host[i] == (float)expected(i));
        ok &= CHECK(wrong == 0);
        if (!ok && ++told <= 1)
            fprintf(stderr, "  %s without a bug, schedule %llu: %d of %d numbers wrong; it said:\n%s", name,
                    schedule, wrong, count, message);
        if (!ok) cudaDeviceReset();
    }
    simt_set_sanitizing(1);
}

#endif
