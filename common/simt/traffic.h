// traffic.h - counting requests, sectors and wavefronts for each place in the code (traffic.cpp).
#ifndef SIMT_TRAFFIC_H
#define SIMT_TRAFFIC_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace simt {

struct Worker;

// One load or store in a kernel's code, and what it did.
struct AccessSite {
    uintptr_t pc = 0;  // return address of the hook: names the line
    unsigned size = 0;
    bool write = false, shared = false;
    unsigned long long accesses = 0;    // by single lanes
    unsigned long long requests = 0;    // by warps
    unsigned long long sectors = 0;     // global: 32 bytes each
    unsigned long long wavefronts = 0;  // shared
    unsigned long long ideal = 0;       // the fewest sectors or wavefronts for these accesses

    // The same place with nothing counted.
    AccessSite place() const {
        AccessSite it;
        it.pc = pc, it.size = size, it.write = write, it.shared = shared;
        return it;
    }
    void add(const AccessSite &other) {
        accesses += other.accesses;
        requests += other.requests;
        sectors += other.sectors;
        wavefronts += other.wavefronts;
        ideal += other.ideal;
    }
};

class Traffic {
  public:
    Traffic();
    ~Traffic();
    void access(Worker &worker, uintptr_t pc, uint64_t address, unsigned size, bool write, bool shared);
    void warp_met(int warp);  // all lanes of the warp are at the same place
    void block_ended(const Worker &worker);
    std::vector<AccessSite> take();  // the figures since the last call

  private:
    struct Group;
    struct Track;
    int find_site(uintptr_t pc, unsigned size, bool write, bool shared);
    void finish(AccessSite &site, Group &group);

    std::vector<int> table;  // hash of (pc, shared) -> index into sites, -1 empty
    std::vector<AccessSite> sites;
    std::vector<std::vector<std::unique_ptr<Track>>> tracks;  // [site][warp]
    std::vector<std::vector<size_t>> touched;  // [warp]: sites with accesses since the warp met
};

}  // namespace simt

#endif
