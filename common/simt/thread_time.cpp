#include "thread_time.h"

#include <algorithm>

#include "internal.h"

namespace simt {

Steps time_now(const Worker &worker) {
    return worker.current->time + (worker.blocks_run.steps - worker.steps_settled);
}

void settle_time(Worker &worker) {
    worker.current->time = time_now(worker);
    worker.steps_settled = worker.blocks_run.steps;
}

void wait_until(Worker &worker, Fiber &fiber, Steps time) {
    if (&fiber == worker.current) settle_time(worker);
    fiber.time = std::max(fiber.time, time);
}

Steps copy_end(Worker &worker, size_t bytes) {
    if (!worker.launch->tracing) return 0;
    Steps begin = std::max(time_now(worker), worker.engines.copies);
    worker.engines.copies = begin + (bytes + copy_bytes_a_step - 1) / copy_bytes_a_step;
    return worker.engines.copies + copy_latency;
}

Steps product_end(Worker &worker, Steps ready, Steps steps) {
    if (!worker.launch->tracing) return 0;
    worker.engines.tensor_cores = std::max(ready, worker.engines.tensor_cores) + steps;
    return worker.engines.tensor_cores;
}

Steps thread_time() {
    return current_worker && current_worker->launch->tracing ? time_now(*current_worker) : 0;
}

}  // namespace simt
