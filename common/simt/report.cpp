// report.cpp - what a stopped launch says: what happened, where in the .cu, which thread of which block.
#include <unistd.h>

#include <cstdarg>
#include <cstring>
#include <map>
#include <mutex>

#include "internal.h"

extern "C" char __executable_start;

namespace simt {

static std::mutex report_mutex;

std::string format(const char *pattern, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, pattern);
    vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

std::string short_path(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

// Asks addr2line for the inlined call chain at an address and takes the first frame in a .cu: the line of the
// kernel, not of the header function that the compiler put there.
std::string source_position(uintptr_t pc) {
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return "?";
    program[n] = 0;
    std::string quoted = "'";
    for (const char *c = program; *c; c++) quoted += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
    quoted += "'";
    uintptr_t offset = pc - reinterpret_cast<uintptr_t>(&__executable_start) - 1;
    // A program that is not position independent keeps its link addresses.
    std::string first, found;
    for (uintptr_t address : {offset, pc - 1}) {
        std::string command = format("addr2line -i -e %s 0x%zx 2>/dev/null", quoted.c_str(), size_t(address));
        FILE *pipe = popen(command.c_str(), "r");
        if (!pipe) break;
        char text[4096];
        while (fgets(text, sizeof text, pipe)) {
            std::string frame(text, strcspn(text, " \n"));
            if (frame[0] == '?') continue;
            if (first.empty()) first = frame;
            size_t colon = frame.rfind(':');
            if (found.empty() && colon >= 3 && frame.compare(colon - 3, 3, ".cu") == 0) found = frame;
        }
        pclose(pipe);
        if (!first.empty()) break;
    }
    if (!found.empty()) return short_path(found.c_str());
    if (!first.empty()) return short_path(first.c_str());
    return format("address 0x%zx (install binutils for file and line)", size_t(offset));
}

void report_fault(Worker &worker) {
    const Fault &fault = worker.fault;
    const ThreadIndex &index = worker.current->index;
    std::string where = fault.pc ? " at " + source_position(fault.pc) : "";
    std::lock_guard<std::mutex> lock(report_mutex);
    fflush(stdout);
    fprintf(stderr, "simt: kernel %s stopped%s: %s\n", worker.kernel_name, where.c_str(), fault.text.c_str());
    if (fault.error != cudaErrorLaunchTimeout)
        fprintf(stderr, "simt:     thread (%u,%u,%u) of block (%u,%u,%u), launched from %s:%d\n",
                index.threadIdx.x, index.threadIdx.y, index.threadIdx.z, index.blockIdx.x, index.blockIdx.y,
                index.blockIdx.z, short_path(worker.launch->what->file).c_str(), worker.launch->what->line);
}

// Threads that wait at the same place, in one line: "threads 32-63: bar.sync 1 (64 of 96 came) at a.cu:12".
std::string describe_waits(Worker &worker) {
    const ThreadIndex &index = worker.fibers[0].index;
    std::string text =
        format("deadlock in block (%u,%u,%u): %d of %d threads wait for each other", index.blockIdx.x,
               index.blockIdx.y, index.blockIdx.z, worker.live, worker.threads);
    auto same = [](const Fiber &a, const Fiber &b) {
        return a.done == b.done && a.wait.line == b.wait.line && a.wait.barrier == b.wait.barrier &&
               (a.done || !strcmp(a.wait.what, b.wait.what));
    };
    int lines = 0;
    for (size_t from = 0, to; from < worker.fibers.size(); from = to) {
        const Fiber &fiber = worker.fibers[from];
        for (to = from + 1; to < worker.fibers.size() && same(fiber, worker.fibers[to]);) to++;
        if (++lines > 40) {
            text += "\nsimt:     ...";
            break;
        }
        text += format("\nsimt:     threads %zu-%zu: ", from, to - 1);
        if (fiber.done) {
            text += "returned";
            continue;
        }
        text += fiber.wait.what;
        if (fiber.wait.barrier >= 0) {
            const Barrier &barrier = worker.barriers[fiber.wait.barrier];
            text += format(" (barrier %d: %d of %d came)", fiber.wait.barrier, barrier.arrived,
                           barrier.expected < 0 ? worker.live : barrier.expected);
        } else {
            text += format(" (mask 0x%08x)", fiber.collective_mask);
        }
        text += format(" at %s:%d", short_path(fiber.wait.file).c_str(), fiber.wait.line);
    }
    return text;
}

void trap(const char *file, int line) {
    stop_block(cudaErrorLaunchFailure, format("__trap() at %s:%d", short_path(file).c_str(), line));
}

}  // namespace simt
