// parallel.h - a loop whose iterations run on all of the machine's hardware threads.
#ifndef PARALLEL_H
#define PARALLEL_H

#include <stdint.h>

// How many workers parallel_for uses at most: the machine's hardware threads, 1 ... 64.
int parallel_workers(void);

// Calls work(context, item, worker) once for each item 0 ... items - 1, in any order, on up to
// parallel_workers() threads. `worker` (0 ... parallel_workers() - 1) is the calling thread's own number: it
// selects scratch memory. A result must depend on the item alone, so that it is the same whatever the number
// of threads. Returns when all items are done. If threads cannot be made, the caller does the work alone.
// parallel_for_on uses no more than `workers` threads (at least one), where each needs much memory.
void parallel_for_on(int workers, int64_t items, void (*work)(void *context, int64_t item, int worker),
                     void *context);
void parallel_for(int64_t items, void (*work)(void *context, int64_t item, int worker), void *context);

#endif
