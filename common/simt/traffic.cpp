// traffic.cpp - what Nsight Compute would count: requests, sectors, shared-memory wavefronts, for each source
// line.
//
// On a GPU the 32 lanes of a warp execute a load together, as one request; here each lane comes alone, in its
// own time. So a lane's k-th access at one place in the code is put together with the other lanes' k-th
// access there, counted since the warp last met (at a barrier, __syncwarp or a shuffle by all). A group is
// counted once all lanes are in it, or when the warp meets again: then the missing lanes did not take part. A
// lane that is far ahead of the others waits for them.
//
// So if lanes go different numbers of times round an inner loop without meeting, the rounds of the outer loop
// are mixed up in it; a GPU would gather the lanes after each inner loop.
//
// Requests, sectors and wavefronts as in the Nsight Compute documentation ("Memory Tables"; L1/TEX: a sector
// is 32 bytes; shared memory: a wavefront serves 32 banks of 4 bytes). What that leaves open is as measured
// on an H200; tests/calibration holds each rule to the measurements.
#include <algorithm>
#include <cstring>

#include "internal.h"
#include "traffic.h"

namespace simt {

constexpr unsigned groups_in_flight = 64;  // a power of two
constexpr int patience = 4 * max_threads_per_block;

struct Traffic::Group {
    uint32_t lanes = 0;    // who is in it
    uint32_t ordinal = 0;  // the k of these accesses
    uint64_t address[warp_size];
};

struct Traffic::Track {
    uint32_t count[warp_size] = {};  // accesses of each lane since the warp met
    bool touched = false;
    std::vector<Group> groups{groups_in_flight};
};

Traffic::Traffic() : table(1024, -1), touched(max_threads_per_block / warp_size) {}
Traffic::~Traffic() = default;

// Distinct 32-byte sectors that the group touches.
static unsigned count_sectors(const uint64_t *address, uint32_t lanes, unsigned size) {
    uint64_t sectors[2 * warp_size];
    int n = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        uint64_t first = address[__builtin_ctz(rest)];
        sectors[n++] = first / 32;
        if ((first + size - 1) / 32 != first / 32) sectors[n++] = (first + size - 1) / 32;
    }
    std::sort(sectors, sectors + n);
    return unsigned(std::unique(sectors, sectors + n) - sectors);
}

// An atomic on global memory: lanes with the same address go one after the other, each with a sector of its
// own; lanes with different addresses in one sector go together. Measured on an H200 for 32 lanes at one
// address (32 sectors), at neighbouring words (4) and at words of 32 sectors (32), alike whether the old
// value is used or not.
static unsigned count_atomic_sectors(const uint64_t *address, uint32_t lanes) {
    uint64_t sorted[warp_size];
    int n = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) sorted[n++] = address[__builtin_ctz(rest)];
    std::sort(sorted, sorted + n);
    unsigned sectors = 0;
    for (int i = 0; i < n;) {
        unsigned most = 0;  // lanes at one address of this sector
        for (uint64_t sector = sorted[i] / 32; i < n && sorted[i] / 32 == sector;) {
            unsigned same = 0;
            for (uint64_t at = sorted[i]; i < n && sorted[i] == at; i++) same++;
            most = std::max(most, same);
        }
        sectors += most;
    }
    return sectors;
}

// What the busiest bank has to serve: different words, or, of atomics, lanes.
static unsigned count_busiest_bank(const uint64_t *address, uint32_t lanes, unsigned size, bool atomic) {
    uint64_t words[warp_size * 4];
    int n = 0;
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        for (unsigned byte = 0; byte < size; byte += 4)
            words[n++] = (address[__builtin_ctz(rest)] + byte) / 4;
    std::sort(words, words + n);
    if (!atomic) n = int(std::unique(words, words + n) - words);
    unsigned in_bank[32] = {}, most = 0;
    for (int i = 0; i < n; i++) most = std::max(most, ++in_bank[words[i] % 32]);
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

struct Wavefronts {
    unsigned all = 0, ideal = 0;  // ideal: if no bank were wanted twice
};

// Wavefronts of one request to shared memory. Lanes that want different words of one bank wait for each
// other, lanes that want the same word do not, except for an atomic. What is wider than a bank goes in
// passes: half a warp at a time with 8 bytes a lane, a quarter with 16, and a pass without lanes costs
// nothing.
//
// A load merges two neighbouring passes (the halves; each half's two quarters) into one if its lanes 2 i and
// 2 i + 1 want the same address or one of them takes no part: then together they want no more than one pass
// could give. Stores never merge. Conflicts, to Nsight Compute, are the wavefronts above the number of passes
// after merging. Measured on an H200: 37 kernels each of 8 and 16 bytes, of which those with equal addresses
// have them in neighbouring lanes.
static Wavefronts count_wavefronts(const uint64_t *address, uint32_t lanes, unsigned size, AccessKind kind) {
    int pass = size <= 4 ? warp_size : size <= 8 ? warp_size / 2 : warp_size / 4;
    int span = size <= 4 ? pass : 2 * pass;  // what may merge
    Wavefronts sum;
    for (int from = 0; from < warp_size; from += span) {
        uint32_t in_span = lanes & (span == warp_size ? ~0u : (1u << span) - 1) << from;
        bool merged = span == pass || (kind == AccessKind::load && lanes_are_paired(address, in_span));
        int width = merged ? span : pass;
        for (int first = from; first < from + span; first += width) {
            uint32_t together = in_span & (width == warp_size ? ~0u : (1u << width) - 1) << first;
            if (!together) continue;
            sum.all += count_busiest_bank(address, together, size, kind == AccessKind::atomic);
            sum.ideal++;
        }
    }
    return sum;
}

void Traffic::finish(AccessSite &site, Group &group) {
    site.requests++;
    if (site.place.shared) {
        Wavefronts counted = count_wavefronts(group.address, group.lanes, site.place.size, site.place.kind);
        site.wavefronts += counted.all;
        site.ideal += counted.ideal;
    } else {
        site.sectors += site.place.kind == AccessKind::atomic
                            ? count_atomic_sectors(group.address, group.lanes)
                            : count_sectors(group.address, group.lanes, site.place.size);
        site.ideal += (unsigned(__builtin_popcount(group.lanes)) * site.place.size + 31) / 32;
    }
    group.lanes = 0;
}

// Where the search for a place starts in a table of this many slots, a power of two.
static size_t first_slot(const AccessPlace &place, size_t slots) {
    uint64_t key =
        (uint64_t(place.pc) + uint64_t(uintptr_t(place.file)) + uint64_t(place.line)) * 2 + place.shared;
    return size_t((key * 0x9e3779b97f4a7c15ull) >> 32) & (slots - 1);
}

int Traffic::find_site(const AccessPlace &place) {
    size_t slot = first_slot(place, table.size());
    for (int index; (index = table[slot]) >= 0; slot = (slot + 1) & (table.size() - 1))
        if (sites[size_t(index)].place == place) return index;
    int added = int(sites.size());
    sites.emplace_back(place);
    tracks.emplace_back(max_threads_per_block / warp_size);
    table[slot] = added;
    if (2 * sites.size() > table.size()) {  // all kernels of the program are in it: keep half of it empty
        table.assign(2 * table.size(), -1);
        for (size_t i = 0; i < sites.size(); i++) {
            for (slot = first_slot(sites[i].place, table.size()); table[slot] >= 0;)
                slot = (slot + 1) & (table.size() - 1);
            table[slot] = int(i);
        }
    }
    return added;
}

void Traffic::access(Worker &worker, const AccessPlace &place, uint64_t address) {
    const Fiber &fiber = *worker.current;
    size_t index = size_t(find_site(place));
    auto &slot = tracks[index][size_t(fiber.warp)];
    if (!slot) slot.reset(new Track);
    Track &track = *slot;
    if (!track.touched) {
        track.touched = true;
        touched[size_t(fiber.warp)].push_back(index);
    }
    uint32_t ordinal = track.count[fiber.lane];
    Group *group = &track.groups[ordinal % groups_in_flight];
    // This lane is far ahead: the slot still holds an access of long ago that others have not come to. Under
    // a random schedule it takes some turns until they have.
    for (int turns = 0; group->lanes && group->ordinal != ordinal && turns < patience; turns++) {
        let_others_run(worker);
        ordinal = track.count[fiber.lane];
        group = &track.groups[ordinal % groups_in_flight];
    }
    if (group->lanes && group->ordinal != ordinal) finish(sites[index], *group);  // they do not come this way
    if (!track.touched) {  // the warp met while this lane waited
        track.touched = true;
        touched[size_t(fiber.warp)].push_back(index);
    }
    group->ordinal = ordinal;
    group->address[fiber.lane] = address;
    group->lanes |= 1u << fiber.lane;
    track.count[fiber.lane] = ordinal + 1;
    sites[index].accesses++;
    if (group->lanes == worker.warps[size_t(fiber.warp)].lanes) finish(sites[index], *group);
}

void Traffic::warp_met(int warp) {
    for (size_t index : touched[size_t(warp)]) {
        Track &track = *tracks[index][size_t(warp)];
        for (Group &group : track.groups)
            if (group.lanes) finish(sites[index], group);
        memset(track.count, 0, sizeof track.count);
        track.touched = false;
    }
    touched[size_t(warp)].clear();
}

void Traffic::block_ended(const Worker &worker) {
    for (size_t warp = 0; warp < worker.warps.size(); warp++) warp_met(int(warp));
}

std::vector<AccessSite> Traffic::take() {
    std::vector<AccessSite> result;
    for (AccessSite &site : sites) {
        if (site.accesses) result.push_back(site);
        site = AccessSite(site.place);
    }
    return result;
}

}  // namespace simt
