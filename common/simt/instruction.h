// instruction.h - what the instructions of ptx.h need of the rest of the backend.
#ifndef SIMT_INSTRUCTION_H
#define SIMT_INSTRUCTION_H

#include "internal.h"

namespace simt {

// Touches `bytes` bytes for `thread`, as its own load or store would: bounds, alignment, unwritten memory,
// copies in flight, races; counts the bytes. A fault stops the block. `what` names the instruction in
// messages. Returns where the bytes are.
char *touch_shared(Worker &worker, int thread, uintptr_t place, const char *what, uint32_t address,
                   size_t bytes, size_t alignment, bool write);
char *touch_global(Worker &worker, int thread, uintptr_t place, const char *what, const void *address,
                   size_t bytes, size_t alignment, bool write);

// The same without races, bytes counted or any change of state; for what an asynchronous instruction will
// touch later.
char *check_shared(Worker &worker, const char *what, uintptr_t place, uint32_t address, size_t bytes,
                   size_t alignment, bool write);

void check_alignment(Worker &worker, const char *what, uintptr_t place, uint32_t address, size_t alignment);
// Device memory that a cache is asked for: it has to be there.
void check_prefetch(Worker &worker, uintptr_t place, const char *what, const void *address, size_t bytes);
// Device memory that an atomic addition reads and writes.
void touch_for_addition(Worker &worker, uintptr_t place, const char *what, void *address, size_t bytes);

}  // namespace simt

#endif
