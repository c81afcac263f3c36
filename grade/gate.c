#define _DEFAULT_SOURCE
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

enum { LOOK_AGAIN_NS = 3000000 };

// Each opens the file for itself: a lock belongs to what was opened.
static int open_lock(const struct gate *gate, const char *what, int number) {
    char path[MAX_PATH];
    struct message why = {""};
    if (text_path(path, &why, "%s/%s_%s_%d", gate->folder, gate->name, what, number) != 0) return -1;
    return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

// 1 and *fd, -1 if it cannot be opened, or 0 if others have it. `how`: of flock.
static int try_lock(const struct gate *gate, const char *what, int number, int how, int *fd) {
    if ((*fd = open_lock(gate, what, number)) < 0) return -1;
    if (flock(*fd, how | LOCK_NB) == 0) return 1;
    close(*fd);
    return 0;
}

static int wait_for_lock(const struct gate *gate, const char *what, int number) {
    int fd = open_lock(gate, what, number);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) continue;
    return fd;
}

int gate_pass(const struct gate *gate) {
    const struct timespec moment = {0, LOOK_AGAIN_NS};
    for (;;) {
        int turn = -1, place = -1;
        int passed = try_lock(gate, "turn", 0, LOCK_SH, &turn);
        if (passed < 0) return -1;
        if (passed) {
            passed = 0;
            for (int i = 0; passed == 0 && i < gate->places; ++i)
                passed = try_lock(gate, "place", i, LOCK_EX, &place);
            gate_leave(turn);
        }
        if (passed) return place;
        nanosleep(&moment, NULL);
    }
}

void gate_pass_alone(const struct gate *gate, struct gate_alone *all) {
    all->turn = wait_for_lock(gate, "turn", 0);
    for (all->count = 0; all->count < gate->places && all->count < GATE_ALONE; ++all->count)
        all->place[all->count] = wait_for_lock(gate, "place", all->count);
}

void gate_leave(int place) {
    if (place >= 0) close(place);
}

void gate_leave_alone(struct gate_alone *all) {
    for (int i = 0; i < all->count; ++i) gate_leave(all->place[i]);
    gate_leave(all->turn);
    all->count = 0, all->turn = -1;
}
