// traffic.cpp - what Nsight Compute would count: requests, sectors, shared-memory wavefronts, for each source
// line.
//
// On a GPU the 32 lanes of a warp execute a load together, as one request; here each lane comes alone, in its
// own time. So a lane's k-th access at one place in the code is put together with the other lanes' k-th
// access there, counted since the warp last met (at a barrier, __syncwarp or a shuffle by all). A group is
// counted once all lanes are in it, or when the warp meets again: then the missing lanes did not take part. A
// lane that is far ahead of the others waits for them.
//
// Requests, sectors and wavefronts as in the Nsight Compute documentation ("Memory Tables"; L1/TEX: a sector
// is 32 bytes; shared memory: a wavefront serves 32 banks of 4 bytes).
#include <algorithm>
#include <cstring>

#include "internal.h"
#include "traffic.h"

namespace simt {

constexpr unsigned groups_in_flight = 64;  // a power of two
constexpr int patience = 4 * max_threads_per_block;
constexpr size_t table_size = 4096;  // a power of two, more than the accesses that a kernel's code has

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

Traffic::Traffic() : table(table_size, -1), touched(max_threads_per_block / warp_size) {}
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

// Wavefronts of one request to shared memory: lanes that want different words of one bank wait for each
// other. Accesses of 8 bytes go half a warp at a time, those of 16 bytes a quarter.
static unsigned count_wavefronts(const uint64_t *address, uint32_t lanes, unsigned size) {
    int together = size <= 4 ? 32 : int(128 / size);
    unsigned wavefronts = 0;
    for (int from = 0; from < warp_size; from += together) {
        uint64_t words[warp_size * 4];
        int n = 0;
        for (int lane = from; lane < from + together; lane++)
            if (lanes >> lane & 1)
                for (unsigned byte = 0; byte < size; byte += 4) words[n++] = (address[lane] + byte) / 4;
        if (n == 0) continue;
        std::sort(words, words + n);
        n = int(std::unique(words, words + n) - words);
        unsigned in_bank[32] = {}, most = 0;
        for (int i = 0; i < n; i++) most = std::max(most, ++in_bank[words[i] % 32]);
        wavefronts += most;
    }
    return wavefronts;
}

void Traffic::finish(AccessSite &site, Group &group) {
    site.requests++;
    unsigned lanes = unsigned(__builtin_popcount(group.lanes));
    if (site.shared) {
        site.wavefronts += count_wavefronts(group.address, group.lanes, site.size);
        site.ideal += site.size <= 4 ? 1 : (lanes * site.size + 127) / 128;
    } else {
        site.sectors += count_sectors(group.address, group.lanes, site.size);
        site.ideal += (lanes * site.size + 31) / 32;
    }
    group.lanes = 0;
}

int Traffic::find_site(uintptr_t pc, unsigned size, bool write, bool shared) {
    uint64_t key = uint64_t(pc) * 2 + shared;
    size_t slot = size_t((key * 0x9e3779b97f4a7c15ull) >> 52);
    for (int index; (index = table[slot]) >= 0; slot = (slot + 1) & (table_size - 1)) {
        const AccessSite &it = sites[size_t(index)];
        if (it.pc == pc && it.shared == shared && it.write == write && it.size == size) return index;
    }
    AccessSite site;
    site.pc = pc;
    site.size = size;
    site.write = write;
    site.shared = shared;
    sites.push_back(site);
    tracks.emplace_back(max_threads_per_block / warp_size);
    table[slot] = int(sites.size()) - 1;
    return table[slot];
}

void Traffic::access(Worker &worker, uintptr_t pc, uint64_t address, unsigned size, bool write, bool shared) {
    const Fiber &fiber = *worker.current;
    size_t index = size_t(find_site(pc, size, write, shared));
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
        site.accesses = site.requests = site.sectors = site.wavefronts = site.ideal = 0;
    }
    return result;
}

}  // namespace simt
