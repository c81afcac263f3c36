// collectives.cpp - what shuffles, votes and warp reductions do once all lanes have come.
// CUDA C++ Programming Guide, "Warp Shuffle Functions", "Warp Vote Functions", "Warp Reduce Functions".
#include "internal.h"

namespace simt {

static ShuffleArgument &lane_argument(void *const lane[32], int i) {
    return *static_cast<ShuffleArgument *>(lane[i]);
}

// What a lane reads from one that does not take part: undefined on a GPU; here NaN as a float and -1 as an
// integer.
constexpr uint64_t undefined_value = ~uint64_t(0);

// Every lane's result is the value of the lane that `choose` names.
template <class Choose> static void shuffle(void *const lane[32], unsigned mask, Choose choose) {
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        ShuffleArgument &mine = lane_argument(lane, i);
        int width = mine.width, segment = i & ~(width - 1);
        int source = choose(i, segment, width, mine.selector);
        mine.result = mask >> source & 1 ? lane_argument(lane, source).value : undefined_value;
    }
}

void shuffle_index(void *const lane[32], unsigned mask) {
    shuffle(lane, mask,
            [](int, int segment, int width, int selector) { return segment + (selector & (width - 1)); });
}

void shuffle_up(void *const lane[32], unsigned mask) {
    shuffle(lane, mask,
            [](int i, int segment, int, int selector) { return i - selector >= segment ? i - selector : i; });
}

void shuffle_down(void *const lane[32], unsigned mask) {
    shuffle(lane, mask, [](int i, int segment, int width, int selector) {
        return i + selector < segment + width ? i + selector : i;
    });
}

void shuffle_xor(void *const lane[32], unsigned mask) {
    shuffle(lane, mask, [](int i, int segment, int width, int selector) {
        int source = i ^ selector;
        return source < segment + width ? (source & 31)
                                        : i;  // lanes below the segment may be read, those above may not
    });
}

template <class Combine> static void combine(void *const lane[32], unsigned mask, Combine step) {
    uint64_t result = lane_argument(lane, __builtin_ctz(mask)).value;
    for (unsigned rest = mask & (mask - 1); rest; rest &= rest - 1)
        result = step(result, lane_argument(lane, __builtin_ctz(rest)).value);
    for (unsigned rest = mask; rest; rest &= rest - 1)
        lane_argument(lane, __builtin_ctz(rest)).result = result;
}

void vote_ballot(void *const lane[32], unsigned mask) {
    uint64_t votes = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        int i = __builtin_ctz(rest);
        votes |= (lane_argument(lane, i).value & 1) << i;
    }
    for (unsigned rest = mask; rest; rest &= rest - 1)
        lane_argument(lane, __builtin_ctz(rest)).result = votes;
}

void match_any(void *const lane[32], unsigned mask) {
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        ShuffleArgument &mine = lane_argument(lane, __builtin_ctz(rest));
        uint64_t same = 0;
        for (unsigned others = mask; others; others &= others - 1) {
            int j = __builtin_ctz(others);
            if (lane_argument(lane, j).value == mine.value) same |= uint64_t(1) << j;
        }
        mine.result = same;
    }
}

void reduce_add(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return uint64_t(uint32_t(a + b)); });
}
void reduce_min(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return a < b ? a : b; });
}
void reduce_max(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}
void reduce_min_signed(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return int32_t(a) < int32_t(b) ? a : b; });
}
void reduce_max_signed(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return int32_t(a) > int32_t(b) ? a : b; });
}
void reduce_and(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return a & b; });
}
void reduce_or(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return a | b; });
}
void reduce_xor(void *const lane[32], unsigned mask) {
    combine(lane, mask, [](uint64_t a, uint64_t b) { return a ^ b; });
}

}  // namespace simt
