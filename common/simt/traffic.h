// traffic.h - counting requests, sectors and wavefronts for each place in the code (traffic.cpp).
#ifndef SIMT_TRAFFIC_H
#define SIMT_TRAFFIC_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "include/cuda_runtime_api.h"
#include "wavefronts.h"

namespace simt {

struct Worker;

// Loads, stores and atomics by threads; both sides of a cp.async; ldmatrix and stmatrix; wgmma's operands;
// the global side of TMA and the bulk copies.
enum class AccessKind : uint8_t {
    load,
    store,
    atomic,
    async_copy,
    matrix_load,
    matrix_store,
    product,
    bulk_load,
    bulk_store,
    bulk_add
};

// One load, store or atomic in a kernel's code.
struct AccessPlace {
    uintptr_t pc;      // return address of the hook: names the line; 0 for an atomic
    const char *file;  // of an atomic, which comes through a function that is not inlined; else null
    int line;
    unsigned size;
    AccessKind kind;
    bool shared;

    bool is_write() const {
        switch (kind) {
        case AccessKind::load:
        case AccessKind::matrix_load:
        case AccessKind::product:
        case AccessKind::bulk_load:
            return false;
        case AccessKind::async_copy:
            return shared;
        default:
            return true;
        }
    }
    bool is_atomic() const { return kind == AccessKind::atomic || kind == AccessKind::bulk_add; }
    int path() const {  // by which instructions
        return kind == AccessKind::async_copy    ? SIMT_PATH_CP_ASYNC
               : kind >= AccessKind::bulk_load   ? SIMT_PATH_BULK
               : kind == AccessKind::product     ? SIMT_PATH_WGMMA
               : kind >= AccessKind::matrix_load ? SIMT_PATH_MATRIX
                                                 : SIMT_PATH_PLAIN;
    }
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
    unsigned long long fetched = 0;     // those that come from L2 if L1 has none; more only for a cp.async
    unsigned long long wavefronts = 0;  // shared
    unsigned long long ideal =
        0;  // sectors if neighbours were together, wavefronts if no bank was wanted twice

    explicit AccessSite(const AccessPlace &where) : place(where) {}
    void add(const AccessSite &other) {
        accesses += other.accesses;
        requests += other.requests;
        sectors += other.sectors;
        fetched += other.fetched;
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
    // One lane's cp.async: `valid` of `size` bytes.
    void copy_access(Worker &worker, uintptr_t pc, unsigned size, unsigned valid, uint64_t to, uint64_t from);
    // A warp's ldmatrix or stmatrix: 8 lanes for each of 1, 2 or 4 matrices give the address of a row of 16
    // bytes.
    void matrix_request(const AccessPlace &place, const uint64_t *address, int matrices);
    // A warp's part of a wgmma. `bytes` is what the whole instruction reads, and counted with its first warp.
    void product_request(const AccessPlace &place, uint64_t bytes);
    void bulk_request(const AccessPlace &place, const BulkParts &parts);
    void warp_met(int warp);  // all lanes of the warp are at the same place
    void block_ended(const Worker &worker);
    std::vector<AccessSite> take();  // the figures since the last call

  private:
    struct Group;
    struct Track;
    int find_site(const AccessPlace &place);
    Group &next_group(Worker &worker, size_t index);
    void join(Worker &worker, size_t index, Group &group);
    void finish(size_t index, Group &group);
    void finish_copy(size_t index, Group &group);

    std::vector<int> table;  // hash of a place -> index into sites, -1 empty; a power of two
    std::vector<AccessSite> sites;
    std::vector<std::vector<std::unique_ptr<Track>>> tracks;  // [site][warp]
    std::vector<std::vector<size_t>> touched;  // [warp]: sites with accesses since the warp met
};

}  // namespace simt

#endif
