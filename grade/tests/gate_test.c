// gate_test.c - as many processes as there are places, and all places for one.
#define _DEFAULT_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "grade/gate.h"
#include "grade/text.h"

enum { PLACES = 3, PROCESSES = 12, ROUNDS = 5 };

struct seen {
    atomic_int now, most, done, alone, disturbed;
};

static void work(void) {
    const struct timespec moment = {0, 2000000};
    nanosleep(&moment, NULL);
}

static void pass(const struct gate *gate, struct seen *seen) {
    int place = gate_pass(gate), now = atomic_fetch_add(&seen->now, 1) + 1;
    if (now > atomic_load(&seen->most)) atomic_store(&seen->most, now);
    if (atomic_load(&seen->alone)) atomic_fetch_add(&seen->disturbed, 1);
    work();
    atomic_fetch_sub(&seen->now, 1);
    gate_leave(place);
    atomic_fetch_add(&seen->done, 1);
}

static void pass_alone(const struct gate *gate, struct seen *seen) {
    struct gate_alone all;
    gate_pass_alone(gate, &all);
    if (atomic_fetch_add(&seen->alone, 1) > 0 || atomic_load(&seen->now) > 0)
        atomic_fetch_add(&seen->disturbed, 1);
    work();
    atomic_fetch_sub(&seen->alone, 1);
    gate_leave_alone(&all);
    atomic_fetch_add(&seen->done, 1);
}

static int run(const struct gate *gate, struct seen *seen) {
    for (int i = 0; i < PROCESSES; ++i) {
        pid_t child = fork();
        if (child < 0) return -1;
        if (child > 0) continue;
        // The first ends in its place, which must be free again.
        if (i == 0 && gate_pass(gate) >= 0) _exit(0);
        for (int round = 0; round < ROUNDS; ++round) (i % 4 == 3 ? pass_alone : pass)(gate, seen);
        _exit(0);
    }
    while (wait(NULL) > 0 || errno == EINTR) continue;
    return 0;
}

int main(void) {
    char folder[MAX_PATH];
    struct message why = {""};
    struct seen *seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED || temporary_folder(folder, &why) != 0) return 1;
    const struct gate gate = {folder, "test", PLACES}, nowhere = {"/nowhere", "test", PLACES};
    int failed = run(&gate, seen) != 0;
    text_remove_folder(folder);
    int most = atomic_load(&seen->most), done = atomic_load(&seen->done),
        disturbed = atomic_load(&seen->disturbed);
    printf("%d passed, %d at the same time at most, %d were not alone that should have been\n", done, most,
           disturbed);
    failed |= done != (PROCESSES - 1) * ROUNDS || most > PLACES || most < 2 || disturbed > 0;
    failed |= gate_pass(&nowhere) >= 0;  // and does not wait
    return failed;
}
