#define _DEFAULT_SOURCE
#include "speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double full_from = 0.9, none_up_to = 0.45;
enum { TURNS = 3 };

double speed_share_of(double ratio) {
    if (!(ratio > none_up_to)) return 0;
    return ratio >= full_from ? 1 : (ratio - none_up_to) / (full_from - none_up_to);
}

// The time in the folder's out.json, in ms; NaN if there is none.
static double read_time(const char *folder) {
    char path[MAX_PATH];
    struct message why = {""};
    if (text_path(path, &why, "%s/out.json", folder) != 0) return NAN;
    char *text = text_read(path, 1 << 20, &why);
    char *at = text ? strstr(text, "\"ms\": ") : NULL;
    double ms = at ? strtod(at + strlen("\"ms\": "), NULL) : NAN;
    free(text);
    return ms > 0 ? ms : NAN;
}

double speed_share(const struct grader *g, const struct workshop *w, const struct test *test,
                   const char *folder, speed_run *run, struct test_result *result) {
    char reference[MAX_PATH];
    struct message why = {""};
    double best = read_time(folder), best_reference = INFINITY;
    if (text_path(reference, &why, "%s/%s.bin", g->references, test->lab) != 0) return 0;
    for (int turn = 0; turn < TURNS; ++turn) {
        if (!run(g, w, test, reference, 1, folder, result)) {
            result->status = STATUS_ERROR;
            result_say(result, "The grader failed: the reference solution was not right.");
            return 0;
        }
        best_reference = fmin(best_reference, read_time(folder));
        if (!run(g, w, test, w->gpu_program, 1, folder, result)) return 0;
        best = fmin(best, read_time(folder));
    }
    double ratio = best_reference / best;
    if (!isfinite(ratio)) {
        result_say(result, "There is no time to compare.");
        return 0;
    }
    result_say(
        result,
        "%.4g ms, and the reference solution takes %.4g ms: %.2f of its speed (all points from %.2f on)",
        best, best_reference, ratio, full_from);
    return speed_share_of(ratio);
}
