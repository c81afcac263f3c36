#define _DEFAULT_SOURCE
#include "parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_WORKERS = 64 };

struct loop {
    void (*work)(void *, int64_t, int);
    void *context;
    int64_t items;
    atomic_llong next;  // the first item that nobody has taken yet
};

struct worker {
    struct loop *loop;
    int number;
    pthread_t thread;
};

int parallel_workers(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : (int)n;
}

static void *take_items(void *argument) {
    const struct worker *worker = argument;
    struct loop *loop = worker->loop;
    for (int64_t item; (item = atomic_fetch_add(&loop->next, 1)) < loop->items;)
        loop->work(loop->context, item, worker->number);
    return NULL;
}

void parallel_for(int64_t items, void (*work)(void *, int64_t, int), void *context) {
    parallel_for_on(parallel_workers(), items, work, context);
}

void parallel_for_on(int workers, int64_t items, void (*work)(void *, int64_t, int), void *context) {
    struct loop loop = {.work = work, .context = context, .items = items};
    atomic_init(&loop.next, 0);
    struct worker worker[MAX_WORKERS];
    int wanted = workers < MAX_WORKERS ? workers : MAX_WORKERS, started = 0;
    if (wanted > items) wanted = (int)items;
    // Worker 0 is the calling thread.
    for (int i = 1; i < wanted; ++i) {
        worker[i] = (struct worker){.loop = &loop, .number = i};
        if (pthread_create(&worker[i].thread, NULL, take_items, &worker[i]) != 0) break;
        started = i;
    }
    worker[0] = (struct worker){.loop = &loop, .number = 0};
    take_items(&worker[0]);
    for (int i = 1; i <= started; ++i) pthread_join(worker[i].thread, NULL);
}
