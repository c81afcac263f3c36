// report.cpp - what a stopped launch says: what happened, where in the .cu, which thread of which block.
#include <link.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>
#include <map>
#include <mutex>

#include "internal.h"

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

uintptr_t load_address() {
    static const uintptr_t address = [] {
        uintptr_t found = 0;
        dl_iterate_phdr(
            [](dl_phdr_info *info, size_t, void *result) {
                *static_cast<uintptr_t *>(result) = info->dlpi_addr;
                return 1;  // the first is the program itself
            },
            &found);
        return found;
    }();
    return address;
}

// ---- Places: (file, line) pairs, numbered from 1; no program lies at such low addresses ----

static std::mutex places_mutex;
static std::vector<std::string> places;
static std::map<std::pair<const char *, int>, uintptr_t> place_numbers;  // a file's name is one literal
constexpr uintptr_t places_end = 65536;

uintptr_t place_of(const char *file, int line) {
    // A kernel comes to few places again and again.
    struct Recent {
        const char *file;
        int line;
        uintptr_t place;
    };
    static thread_local Recent recent[64];
    Recent &slot = recent[(uintptr_t(file) + unsigned(line)) % 64];
    if (slot.file == file && slot.line == line) return slot.place;
    std::lock_guard<std::mutex> lock(places_mutex);
    uintptr_t &place = place_numbers[{file, line}];
    if (!place) {
        places.push_back(short_path(file) + ":" + std::to_string(line));
        place = places.size();
    }
    slot = {file, line, place};
    return place;
}

bool is_place(uintptr_t pc) { return pc < places_end; }

static std::string place_position(uintptr_t place) {
    std::lock_guard<std::mutex> lock(places_mutex);
    return place && place <= places.size() ? places[place - 1] : "?";
}

// ---- Return addresses ----

std::string quoted_program() {
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    std::string quoted;
    for (const char *c = program; c < program + n; c++)
        quoted += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
    return n > 0 ? "'" + quoted + "'" : "";
}

// Asks addr2line for the inlined call chain at each address and takes the first frame in a .cu: the line of
// the kernel, not of the header function that the compiler put there.
std::vector<std::string> source_positions(const std::vector<uintptr_t> &pcs) {
    std::vector<std::string> positions(pcs.size());
    std::vector<size_t> asked;  // which of them are addresses
    for (size_t i = 0; i < pcs.size(); i++)
        if (is_place(pcs[i]))
            positions[i] = place_position(pcs[i]);
        else
            asked.push_back(i);
    if (asked.empty()) return positions;
    std::string program = quoted_program(), command = "addr2line -a -i -e " + program;
    uintptr_t base = load_address();
    for (size_t i : asked) command += format(" 0x%zx", size_t(pcs[i] - base - 1));
    if (FILE *pipe = !program.empty() ? popen((command + " 2>/dev/null").c_str(), "r") : nullptr) {
        char text[4096];
        size_t next = 0;
        while (fgets(text, sizeof text, pipe)) {
            if (!strncmp(text, "0x", 2)) {  // -a: the address, before its frames
                next++;
                continue;
            }
            if (next == 0 || next > asked.size()) continue;
            std::string frame(text, strcspn(text, "\n"));
            std::string &position = positions[asked[next - 1]];
            size_t note = frame.rfind(" (discriminator");
            if (note != std::string::npos) frame.resize(note);
            size_t colon = frame.rfind(':');
            bool in_kernel =
                colon != std::string::npos && colon >= 3 && frame.compare(colon - 3, 3, ".cu") == 0;
            bool have_kernel = position.find(".cu:") != std::string::npos;
            if (frame[0] != '?' && !have_kernel && (in_kernel || position.empty()))
                position = short_path(frame.c_str());
        }
        pclose(pipe);
    }
    for (size_t i = 0; i < pcs.size(); i++)
        if (positions[i].empty())
            positions[i] =
                format("address 0x%zx (install binutils for file and line)", size_t(pcs[i] - base));
    return positions;
}

std::string source_position(uintptr_t pc) { return source_positions({pc})[0]; }

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
               a.wait.mbarrier == b.wait.mbarrier && (a.done || !strcmp(a.wait.what, b.wait.what));
    };
    int lines = 0;
    for (size_t from = 0, to; from < worker.fibers.size(); from = to) {
        const Fiber &fiber = worker.fibers[from];
        for (to = from + 1; to < worker.fibers.size() && same(fiber, worker.fibers[to]);) to++;
        if (++lines > 40) {
            text += "\nsimt:     ...";
            break;
        }
        text += to == from + 1 ? format("\nsimt:     thread %zu: ", from)
                               : format("\nsimt:     threads %zu-%zu: ", from, to - 1);
        if (fiber.done) {
            text += "returned";
            continue;
        }
        text += fiber.wait.what;
        if (fiber.wait.barrier >= 0) {
            const Barrier &barrier = worker.barriers[fiber.wait.barrier];
            text += format(" (barrier %d: %d of %d came)", fiber.wait.barrier, barrier.arrived,
                           barrier.expected < 0 ? worker.live : barrier.expected);
        } else if (fiber.wait.mbarrier >= 0) {
            uint32_t offset = uint32_t(fiber.wait.mbarrier);
            text += " for " + describe_address(worker, uintptr_t(worker.shared.base) + offset) + " (" +
                    describe_mbarrier(worker, offset) + ")";
        } else if (fiber.collective_mask) {
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
