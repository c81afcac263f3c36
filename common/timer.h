// timer.h - how long a launch takes on the device.
#ifndef TIMER_H
#define TIMER_H

#include "device.h"

struct timing {
    double median_ms;
    double low_ms, high_ms;  // first and third quartile: half of the repetitions lie between them
    int repetitions;         // 0: not timed
};

// Median and quartiles of `count` times, at least one; sorts them.
struct timing timer_summary(float *ms, int count);

// Runs launch(a) once to warm up and then `repetitions` times, with CUDA events round each launch alone. All
// of it is enqueued before anything is waited for, so the host's own pace does not count, and before each
// repetition the L2 cache is overwritten (twice its size), so none finds its inputs there because the one
// before read them. The inputs exist already: flushing before they were made would leave them in the cache.
// On the cpu backend nothing is warmed up or flushed: the figure is the emulator's.
struct timing timer_measure(void (*launch)(struct attention a), struct attention a,
                            const struct device *device, int repetitions);

#endif
