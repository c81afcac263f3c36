// traffic.h - counting requests, sectors and wavefronts for each place in the code (traffic.cpp).
#ifndef SIMT_TRAFFIC_H
#define SIMT_TRAFFIC_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

namespace simt {

struct Worker;

enum class AccessKind : uint8_t { load, store, atomic };

// One load, store or atomic in a kernel's code.
struct AccessPlace {
    uintptr_t pc;      // return address of the hook: names the line; 0 for an atomic
    const char *file;  // of an atomic, which comes through a function that is not inlined; else null
    int line;
    unsigned size;
    AccessKind kind;
    bool shared;

    auto key() const { return std::tie(pc, file, line, size, kind, shared); }
    bool operator==(const AccessPlace &other) const { return key() == other.key(); }
    bool operator<(const AccessPlace &other) const { return key() < other.key(); }
};

// What it did.
struct AccessSite {
    AccessPlace place;
    unsigned long long accesses = 0;    // by single lanes
    unsigned long long requests = 0;    // by warps
    unsigned long long sectors = 0;     // global: 32 bytes each
    unsigned long long wavefronts = 0;  // shared
    unsigned long long ideal =
        0;  // sectors if neighbours were together, wavefronts if no bank was wanted twice

    explicit AccessSite(const AccessPlace &where) : place(where) {}
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
    // One lane's; `address` is the offset in global or shared memory.
    void access(Worker &worker, const AccessPlace &place, uint64_t address);
    void warp_met(int warp);  // all lanes of the warp are at the same place
    void block_ended(const Worker &worker);
    std::vector<AccessSite> take();  // the figures since the last call

  private:
    struct Group;
    struct Track;
    int find_site(const AccessPlace &place);
    void finish(AccessSite &site, Group &group);

    std::vector<int> table;  // hash of a place -> index into sites, -1 empty; a power of two
    std::vector<AccessSite> sites;
    std::vector<std::vector<std::unique_ptr<Track>>> tracks;  // [site][warp]
    std::vector<std::vector<size_t>> touched;  // [warp]: sites with accesses since the warp met
};

}  // namespace simt

#endif
