// flops.cpp - counts a launch's floating-point operations and exponentials without simulating them.
//
// The kernels run as machine code of this processor, so what they compute stands in the program itself. They
// are compiled with -fsanitize-coverage=trace-pc, which puts a call into each basic block; with --profile the
// calls are counted (hooks.cpp). Afterwards objdump shows the program's instructions, once, and the count of
// a launch is the sum over all blocks of: arithmetic instructions in the block, times how often it ran.
//
// After those calls were put in, the compiler still moves code and makes blocks of its own (in front of a
// loop, between two jumps). How often such a block ran follows from its neighbours: what enters a block
// leaves it. If it does not follow, the launch's count is not known; it is never guessed.
//
// Counted are scalar fp32 instructions, as Nsight Compute does: add, subtract and multiply are one operation
// each, a fused multiply-add is two; division and square root, which a GPU computes in several steps, are one
// here. Minimum, comparison, negation and conversion are none. The stand-ins for CUDA's headers compute in
// double where they need arithmetic that is not the kernel's. exp2f, expf and exp10f are known by their
// names.
#include "flops.h"

#include <cstdio>
#include <cstdlib>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "internal.h"
#include "machine_code.h"

extern "C" char __executable_start, etext;  // linker symbols: the program's code

namespace simt {

__thread BlockCounters *block_counters = nullptr;

void BlockCounters::Free::operator()(void *memory) const { free(memory); }

BlockCounters::BlockCounters()
    : first(reinterpret_cast<uintptr_t>(&__executable_start)), size(size_t(&etext - &__executable_start)),
      counts(static_cast<unsigned long long *>(calloc(size, sizeof(unsigned long long)))) {
    if (!counts) size = 0;
}

std::vector<BlockCount> BlockCounters::take() {
    std::vector<BlockCount> result;
    for (size_t at : seen) {
        result.push_back({first + at, counts[at]});
        counts[at] = 0;
    }
    seen.clear();
    return result;
}

namespace {

// ---- The program's graph ----

struct Node {              // instructions that run one after the other; a traced call begins a new one
    uintptr_t traced = 0;  // its return address; 0: not counted
    unsigned long long flops = 0, exponentials = 0;
    bool unclear = false, converts = false;
    bool open_in = false, open_out = false;  // it is also entered or left in ways that are no edge
    std::vector<size_t> in, out;             // edges
};

struct Graph {
    std::vector<Node> nodes;
    std::vector<size_t> function_starts;  // first node of each, and behind the last one the end
    size_t edges = 0;
};

constexpr unsigned long long unknown = ~0ull;

Graph make_graph(const std::vector<Instruction> &program) {
    Graph graph;
    uintptr_t base = load_address();
    std::vector<uintptr_t> targets;
    for (const Instruction &it : program)
        if (it.target) targets.push_back(it.target);
    std::sort(targets.begin(), targets.end());
    std::unordered_map<uintptr_t, size_t> starts;  // address -> node that begins there
    std::vector<size_t> anywhere;                  // functions in which a jump may lead to any node
    auto connect = [&](size_t from, size_t to) {
        graph.nodes[from].out.push_back(graph.edges);
        graph.nodes[to].in.push_back(graph.edges++);
    };

    // Two rounds: make the nodes, then connect them.
    size_t function = 0;
    bool fresh = true;
    for (size_t i = 0; i < program.size(); i++) {
        const Instruction &it = program[i];
        if (!it.address) {
            fresh = true;
            continue;
        }
        bool first = i == 0 || !program[i - 1].address;
        if (first) graph.function_starts.push_back(function = graph.nodes.size());
        if (fresh || it.traced || std::binary_search(targets.begin(), targets.end(), it.address)) {
            starts[it.address] = graph.nodes.size();
            graph.nodes.emplace_back();
            graph.nodes.back().open_in = first;
        }
        Node &node = graph.nodes.back();
        if (it.traced) node.traced = program[i + 1].address + base;
        node.flops += it.flops;
        node.exponentials += it.exponentials;
        node.unclear = node.unclear || it.unclear;
        node.converts = node.converts || it.converts;
        fresh = it.target || it.jumps_away;
        if (it.anywhere) anywhere.push_back(function);
    }
    graph.function_starts.push_back(graph.nodes.size());
    for (size_t from : anywhere) {
        auto to = std::upper_bound(graph.function_starts.begin(), graph.function_starts.end(), from);
        for (size_t n = from; n < *to; n++) graph.nodes[n].open_in = true;
    }
    size_t at = 0;
    for (size_t i = 0; i < program.size(); i++) {
        const Instruction &it = program[i];
        if (!it.address) continue;
        auto start = starts.find(it.address);
        if (start != starts.end()) at = start->second;
        auto target = starts.find(it.target);
        if (it.target && target != starts.end()) connect(at, target->second);
        if (it.anywhere || (it.target && target == starts.end()) || (it.jumps_away && !it.target))
            graph.nodes[at].open_out = true;
        if (it.jumps_away) continue;
        auto next = starts.find(program[i + 1].address);
        if (next != starts.end()) connect(at, next->second);
        if (!program[i + 1].address) graph.nodes[at].open_out = true;  // a call that does not return
    }
    return graph;
}

const Graph &graph() {
    static const Graph it = [] {
        std::vector<Instruction> program = read_program();
        if (program.empty())
            fprintf(stderr, "simt: FLOPs are not counted: that takes objdump (package binutils)\n");
        return make_graph(program);
    }();
    return it;
}

// ---- How often each node ran ----

// If all edges on one side of a node are known, so is the node; if the node and all edges but one are known,
// so is that one. Returns whether it found something out.
bool conclude(const std::vector<size_t> &edges, std::vector<unsigned long long> &edge_counts,
              unsigned long long &count) {
    unsigned long long sum = 0;
    size_t open = 0, last = 0;
    for (size_t edge : edges) {
        if (edge_counts[edge] == unknown)
            open++, last = edge;
        else
            sum += edge_counts[edge];
    }
    if (open == 0 && count == unknown) {
        count = sum;
        return true;
    }
    if (open != 1 || count == unknown || sum > count) return false;
    edge_counts[last] = count - sum;
    return true;
}

// Whether all is known on this side, and contradicts the node's count.
bool contradicts(const std::vector<size_t> &edges, const std::vector<unsigned long long> &edge_counts,
                 unsigned long long count) {
    unsigned long long sum = 0;
    for (size_t edge : edges) {
        if (edge_counts[edge] == unknown) return false;
        sum += edge_counts[edge];
    }
    return count != unknown && sum != count;
}

}  // namespace

Work work_of(const std::vector<BlockCount> &blocks) {
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    Work work;
    const Graph &all = graph();
    work.known = !all.nodes.empty() && !blocks.empty();  // every kernel has a block
    std::unordered_map<uintptr_t, unsigned long long> ran;
    for (const BlockCount &it : blocks) ran[it.pc] = it.count;

    std::vector<unsigned long long> counts(all.nodes.size(), unknown), edge_counts(all.edges, unknown);
    std::vector<size_t> active;  // nodes of functions that ran
    for (size_t f = 0; f + 1 < all.function_starts.size(); f++) {
        size_t from = all.function_starts[f], to = all.function_starts[f + 1];
        bool runs = false;
        for (size_t n = from; n < to; n++) {
            if (!all.nodes[n].traced) continue;
            auto found = ran.find(all.nodes[n].traced);
            counts[n] = found == ran.end() ? 0 : found->second;
            runs = runs || counts[n];
        }
        for (size_t n = from; n < to; n++) {
            if (runs) {
                active.push_back(n);
                continue;
            }
            counts[n] = 0;
            for (size_t edge : all.nodes[n].in) edge_counts[edge] = 0;
            for (size_t edge : all.nodes[n].out) edge_counts[edge] = 0;
        }
    }
    for (bool progress = true; progress;) {
        progress = false;
        for (size_t n : active) {
            const Node &node = all.nodes[n];
            if (!node.open_in && conclude(node.in, edge_counts, counts[n])) progress = true;
            if (!node.open_out && conclude(node.out, edge_counts, counts[n])) progress = true;
        }
    }
    for (size_t n : active) {
        const Node &node = all.nodes[n];
        if ((!node.open_in && contradicts(node.in, edge_counts, counts[n])) ||
            (!node.open_out && contradicts(node.out, edge_counts, counts[n])))
            work.known = false;
        if (!node.flops && !node.exponentials && !node.unclear) continue;
        // Two ways through one operation of the source, of which one is a conversion or a rounding with what
        // the processor has: no FLOPs of the kernel.
        if (counts[n] == unknown && node.converts && !node.unclear && !node.exponentials) continue;
        if (counts[n] == unknown || (node.unclear && counts[n])) {
            work.known = false;
            continue;
        }
        work.fp32_flops += node.flops * counts[n];
        work.exponentials += node.exponentials * counts[n];
    }
    return work;
}

}  // namespace simt
