// wavefronts.cpp - what Nsight Compute counts of one request of a warp: sectors of global memory, wavefronts
// of shared memory.
//
// The rules are those of its documentation ("Memory Tables"; L1/TEX: a sector is 32 bytes; shared memory: a
// wavefront serves 32 banks of 4 bytes). What that leaves open is as measured on an H200; tests/calibration
// holds each rule to the measurements.
#include "wavefronts.h"

#include <algorithm>
#include <tuple>

namespace simt {

constexpr uint64_t line_bytes = 128;  // of L1: four sectors
constexpr int banks = 32;

template <class T> static unsigned count_distinct(T *begin, int n) {
    std::sort(begin, begin + n);
    return unsigned(std::unique(begin, begin + n) - begin);
}

// ---- Global memory ----

// Distinct 32-byte sectors that the group touches.
unsigned count_sectors(const uint64_t *address, uint32_t lanes, unsigned size) {
    uint64_t sectors[2 * lanes_of_warp];
    int n = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        uint64_t first = address[__builtin_ctz(rest)];
        sectors[n++] = first / sector_bytes;
        if ((first + size - 1) / sector_bytes != first / sector_bytes)
            sectors[n++] = (first + size - 1) / sector_bytes;
    }
    return count_distinct(sectors, n);
}

// An atomic on global memory: lanes with the same address go one after the other, each with a sector of its
// own; lanes with different addresses in one sector go together. Measured on an H200 for 32 lanes at one
// address (32 sectors), at neighbouring words (4) and at words of 32 sectors (32), alike whether the old
// value is used or not.
unsigned count_atomic_sectors(const uint64_t *address, uint32_t lanes) {
    uint64_t sorted[lanes_of_warp];
    int n = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) sorted[n++] = address[__builtin_ctz(rest)];
    std::sort(sorted, sorted + n);
    unsigned sectors = 0;
    for (int i = 0; i < n;) {
        unsigned most = 0;  // lanes at one address of this sector
        for (uint64_t sector = sorted[i] / sector_bytes; i < n && sorted[i] / sector_bytes == sector;) {
            unsigned same = 0;
            for (uint64_t at = sorted[i]; i < n && sorted[i] == at; i++) same++;
            most = std::max(most, same);
        }
        sectors += most;
    }
    return sectors;
}

// ---- Shared memory ----

// What the busiest bank has to serve: different words, or (`each_lane`) lanes.
static unsigned count_busiest_bank(const uint64_t *address, uint32_t lanes, unsigned size, bool each_lane) {
    uint64_t words[lanes_of_warp * 4];
    int n = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        for (unsigned byte = 0; byte < size; byte += 4)
            words[n++] = (address[__builtin_ctz(rest)] + byte) / 4;
    std::sort(words, words + n);
    if (!each_lane) n = int(std::unique(words, words + n) - words);
    unsigned in_bank[banks] = {}, most = 0;
    for (int i = 0; i < n; i++) most = std::max(most, ++in_bank[words[i] % banks]);
    return most;
}

// Whether no two lanes 2 i and 2 i + 1 want different things: one of them may be missing.
static bool lanes_are_paired(const uint64_t *address, uint32_t lanes) {
    for (uint32_t rest = lanes & lanes >> 1 & 0x55555555u; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (address[lane] != address[lane + 1]) return false;
    }
    return true;
}

// Lanes that go in one pass: half a warp with 8 bytes a lane, a quarter with 16.
static int lanes_of_pass(unsigned size) {
    return size <= 4 ? lanes_of_warp : size <= 8 ? lanes_of_warp / 2 : lanes_of_warp / 4;
}

static uint32_t lane_range(int first, int count) {
    return (count == lanes_of_warp ? ~0u : (1u << count) - 1) << first;
}

// Wavefronts of one request to shared memory. Lanes that want different words of one bank wait for each
// other, lanes that want the same word do not, except for an atomic. What is wider than a bank goes in
// passes, and a pass without lanes costs nothing.
//
// A load merges two neighbouring passes (the halves; each half's two quarters) into one if its lanes 2 i and
// 2 i + 1 want the same address or one of them takes no part: then together they want no more than one pass
// could give. Stores never merge. Conflicts, to Nsight Compute, are the wavefronts above the number of passes
// after merging. Measured on an H200: 37 kernels each of 8 and 16 bytes, of which those with equal addresses
// have them in neighbouring lanes.
Wavefronts count_wavefronts(const uint64_t *address, uint32_t lanes, unsigned size, SharedAccess kind) {
    int pass = lanes_of_pass(size), span = size <= 4 ? pass : 2 * pass;  // span: what may merge
    Wavefronts sum;
    for (int from = 0; from < lanes_of_warp; from += span) {
        uint32_t in_span = lanes & lane_range(from, span);
        bool merged = span == pass || (kind == SharedAccess::load && lanes_are_paired(address, in_span));
        int width = merged ? span : pass;
        for (int first = from; first < from + span; first += width) {
            uint32_t together = in_span & lane_range(first, width);
            if (!together) continue;
            sum.all += count_busiest_bank(address, together, size, kind == SharedAccess::atomic);
            sum.ideal++;
        }
    }
    return sum;
}

// Each matrix is a pass of its own, also where matrices want the same rows. Transposing costs nothing.
Wavefronts count_matrices(const uint64_t *address, int matrices) {
    Wavefronts sum;
    for (int m = 0; m < matrices; m++) {
        sum.all += count_busiest_bank(address, lane_range(8 * m, 8), 16, false);
        sum.ideal++;
    }
    return sum;
}

// ---- cp.async ----

// 4 or 8 bytes a lane come through L1: its tags are looked up for four lines at a time, and what they find
// then moves from banks (of the line; here two lanes that read one word do get in each other's way) to banks
// (of shared memory), 32 words in a wavefront.
static Wavefronts count_move(const CopyLanes &copy, uint32_t lanes, unsigned size) {
    constexpr unsigned lines_at_once = 4;
    Wavefronts sum;
    for (uint32_t rest = lanes; rest;) {
        uint64_t lines[lines_at_once];
        unsigned n = 0;
        uint32_t together = 0;
        for (uint32_t more = rest; more; more &= more - 1) {
            int lane = __builtin_ctz(more);
            uint64_t line = copy.from[lane] / line_bytes;
            if (std::find(lines, lines + n, line) == lines + n) {
                if (n == lines_at_once) break;
                lines[n++] = line;
            }
            together |= 1u << lane;
        }
        sum.all += std::max(count_busiest_bank(copy.from, together, size, true),
                            count_busiest_bank(copy.to, together, size, false));
        sum.ideal++;
        rest &= ~together;
    }
    return sum;
}

// 16 bytes a lane go past L1, straight from L2 into shared memory, by sectors: no wavefronts, no bank
// conflicts. Two lanes share a sector if they fill one 32-byte block of shared memory with both its halves;
// every other lane fetches a sector for itself. So rows that start at odd multiples of 16 bytes fetch all
// they read twice. What Nsight Compute calls sectors of L1 (l1tex__t_sectors_..., in its total of global
// loads) counts blocks of shared memory for each line of L1 instead.
static void count_past_l1(const CopyLanes &copy, CopyCount &count) {
    using Key = std::tuple<uint64_t, uint64_t, uint64_t>;
    Key tags[lanes_of_warp], fetches[lanes_of_warp];
    int n = 0;
    for (uint32_t rest = copy.reading; rest; rest &= rest - 1, n++) {
        uint64_t from = copy.from[__builtin_ctz(rest)], to = copy.to[__builtin_ctz(rest)];
        uint64_t swapped = (from ^ to) / (sector_bytes / 2) % 2;  // low half to high half, or the other way
        tags[n] = Key(from / line_bytes, to / sector_bytes, 0);
        fetches[n] = Key(from / sector_bytes, to / sector_bytes, swapped);
    }
    count.sectors = count_distinct(tags, n);
    count.fetched = count_distinct(fetches, n);
}

// Zeros that a lane does not read are written by wavefronts of their own, except that a partly valid copy of
// 4 or 8 bytes needs none. Measured on an H200 with 43 kernels.
CopyCount count_copy(const CopyLanes &copy, unsigned size) {
    CopyCount count;
    bool through_l1 = size < 16;
    if (through_l1)
        count.sectors = count.fetched = count_sectors(copy.from, copy.reading, size);
    else
        count_past_l1(copy, count);
    uint32_t padding = through_l1 ? copy.padding & ~copy.reading : copy.padding;
    int pass = lanes_of_pass(size);
    for (int first = 0; first < lanes_of_warp; first += pass) {
        Wavefronts move, zeros;
        if (through_l1) move = count_move(copy, copy.reading & lane_range(first, pass), size);
        if (uint32_t lanes = padding & lane_range(first, pass)) {
            zeros.all = count_busiest_bank(copy.to, lanes, size, false);
            zeros.ideal = 1;
        }
        count.shared.all += move.all + zeros.all;
        count.shared.ideal += move.ideal + zeros.ideal;
    }
    return count;
}

// ---- TMA and bulk copies ----

// The copy goes by lines of 128 bytes of shared memory, each of which asks for its own sectors: 2048 bytes
// that start in the middle of a sector and go to the start of a line are 16 x 5 sectors, not 65. What a load
// finds outside of the tensor comes as sectors as well (a store leaves it out): a box that lies outside
// altogether counts as any other. Measured on an H200.
void BulkParts::add(uint64_t shared, uint64_t global, uint64_t size) {
    for (uint64_t sector = global / sector_bytes; sector <= (global + size - 1) / sector_bytes; sector++)
        sectors.emplace_back(shared / line_bytes, sector);
    read_blocks.push_back(shared / sector_bytes);
    bytes += size;
}

void BulkParts::add_zeros(uint64_t shared, uint64_t size) {
    zero_blocks.push_back(shared / sector_bytes);
    zeros += size;
}

template <class T> static std::vector<T> sorted_distinct(std::vector<T> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

unsigned BulkParts::count_sectors() const {
    size_t count = sorted_distinct(sectors).size();
    std::vector<uint64_t> read = sorted_distinct(read_blocks);
    for (uint64_t block : sorted_distinct(zero_blocks))
        count += !std::binary_search(read.begin(), read.end(), block);
    return unsigned(count);
}

}  // namespace simt
