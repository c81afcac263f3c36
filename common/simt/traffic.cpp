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
// What one request counts is in wavefronts.cpp.
#include <algorithm>
#include <cstring>

#include "internal.h"
#include "traffic.h"

namespace simt {

constexpr unsigned groups_in_flight = 64;  // a power of two
constexpr int patience = 4 * max_threads_per_block;

static_assert(warp_size == lanes_of_warp);

struct Traffic::Group {
    uint32_t lanes = 0;    // who is in it
    uint32_t ordinal = 0;  // the k of these accesses
    uint64_t address[warp_size];
    std::unique_ptr<CopyLanes> copy;  // of a cp.async, in place of the addresses
};

struct Traffic::Track {
    uint32_t count[warp_size] = {};  // accesses of each lane since the warp met
    bool touched = false;
    std::vector<Group> groups{groups_in_flight};
};

Traffic::Traffic() : table(1024, -1), touched(max_threads_per_block / warp_size) {}
Traffic::~Traffic() = default;

void Traffic::finish(size_t index, Group &group) {
    AccessSite &site = sites[index];
    unsigned size = site.place.size;
    uint32_t lanes = group.lanes;
    group.lanes = 0;
    if (group.copy) return finish_copy(index, group);
    bool atomic = site.place.kind == AccessKind::atomic;
    site.requests++;
    if (site.place.shared) {
        SharedAccess kind = atomic                                ? SharedAccess::atomic
                            : site.place.kind == AccessKind::load ? SharedAccess::load
                                                                  : SharedAccess::store;
        Wavefronts counted = count_wavefronts(group.address, lanes, size, kind);
        site.wavefronts += counted.all;
        site.ideal += counted.ideal;
    } else {
        unsigned sectors =
            atomic ? count_atomic_sectors(group.address, lanes) : count_sectors(group.address, lanes, size);
        site.sectors += sectors;
        site.fetched += sectors;
        site.ideal += (unsigned(__builtin_popcount(lanes)) * size + 31) / 32;
    }
}

// The site is that of the shared side; if anything was read, the global side has one as well.
void Traffic::finish_copy(size_t index, Group &group) {
    CopyLanes copy = *group.copy;
    *group.copy = CopyLanes();
    AccessPlace place = sites[index].place;
    CopyCount counted = count_copy(copy, place.size);
    sites[index].requests++;
    sites[index].wavefronts += counted.shared.all;
    sites[index].ideal += counted.shared.ideal;
    if (!copy.reading) return;
    place.shared = false;
    AccessSite &global = sites[size_t(find_site(place))];
    unsigned lanes = unsigned(__builtin_popcount(copy.reading));
    global.accesses += lanes;
    global.requests++;
    global.sectors += counted.sectors;
    global.fetched += counted.fetched;
    global.ideal += (lanes * place.size + 31) / 32;
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

// Where the current lane's next access at this place belongs.
Traffic::Group &Traffic::next_group(Worker &worker, size_t index) {
    const Fiber &fiber = *worker.current;
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
    if (group->lanes && group->ordinal != ordinal) finish(index, *group);  // they do not come this way
    if (!track.touched) {  // the warp met while this lane waited
        track.touched = true;
        touched[size_t(fiber.warp)].push_back(index);
    }
    group->ordinal = ordinal;
    track.count[fiber.lane] = ordinal + 1;
    return *group;
}

// The current lane is in the group now.
void Traffic::join(Worker &worker, size_t index, Group &group) {
    const Fiber &fiber = *worker.current;
    group.lanes |= 1u << fiber.lane;
    sites[index].accesses++;
    if (group.lanes == worker.warps[size_t(fiber.warp)].lanes) finish(index, group);
}

void Traffic::access(Worker &worker, const AccessPlace &place, uint64_t address) {
    size_t index = size_t(find_site(place));
    Group &group = next_group(worker, index);
    group.address[worker.current->lane] = address;
    join(worker, index, group);
}

void Traffic::copy_access(Worker &worker, uintptr_t pc, unsigned size, unsigned valid, uint64_t to,
                          uint64_t from) {
    size_t index = size_t(find_site({pc, nullptr, 0, size, AccessKind::async_copy, true}));
    Group &group = next_group(worker, index);
    if (!group.copy) group.copy.reset(new CopyLanes);
    int lane = worker.current->lane;
    group.copy->lanes |= 1u << lane;
    group.copy->to[lane] = to;
    group.copy->from[lane] = from;
    if (valid) group.copy->reading |= 1u << lane;
    if (valid < size) group.copy->padding |= 1u << lane;
    join(worker, index, group);
}

void Traffic::matrix_request(const AccessPlace &place, const uint64_t *address, int matrices) {
    AccessSite &site = sites[size_t(find_site(place))];
    Wavefronts counted = count_matrices(address, matrices);
    site.accesses += unsigned(8 * matrices);
    site.requests++;
    site.wavefronts += counted.all;
    site.ideal += counted.ideal;
}

// All layouts that wgmma takes let it read 128 bytes in a wavefront. Measured on an H200 for 64 x 64 x 16 in
// fp16: 32 wavefronts for all four swizzles.
void Traffic::product_request(const AccessPlace &place, uint64_t bytes) {
    AccessSite &site = sites[size_t(find_site(place))];
    site.accesses += bytes / place.size;
    site.requests++;
    site.wavefronts += bytes / 128;
    site.ideal += bytes / 128;
}

void Traffic::bulk_request(const AccessPlace &place, const BulkParts &parts) {
    AccessSite &site = sites[size_t(find_site(place))];
    unsigned sectors = parts.count_sectors();
    site.accesses += parts.bytes / place.size;
    site.requests++;
    site.sectors += sectors;
    site.fetched += sectors;
    site.ideal += (parts.bytes + parts.zeros + sector_bytes - 1) / sector_bytes;
}

void Traffic::warp_met(int warp) {
    for (size_t index : touched[size_t(warp)]) {
        Track &track = *tracks[index][size_t(warp)];
        for (Group &group : track.groups)
            if (group.lanes) finish(index, group);
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
        if (site.accesses || site.requests) result.push_back(site);
        site = AccessSite(site.place);
    }
    return result;
}

}  // namespace simt
