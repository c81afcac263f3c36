// gate.h - how many of the grader's processes do something at the same time. A place is held by an open file
// and is free again when its holder ends, however it does.
#ifndef GATE_H
#define GATE_H

enum { GATE_ALONE = 16 };  // places at most where somebody takes all

struct gate {
    const char *folder;  // shared by all who pass; nobody else may write in it
    const char *name;
    int places;
};

// Waits for one of the places, and takes it. The result is for gate_leave. (Where the folder cannot be
// written, nobody waits.)
int gate_pass(const struct gate *gate);

// Waits until nobody else has passed, and takes all places. Who asks for all goes before those who ask for
// one.
struct gate_alone {
    int turn, place[GATE_ALONE], count;
};
void gate_pass_alone(const struct gate *gate, struct gate_alone *all);

void gate_leave(int place);
void gate_leave_alone(struct gate_alone *all);

#endif
