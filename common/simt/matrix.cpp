// matrix.cpp - ldmatrix, stmatrix and mma.sync: each a collective of a whole warp, run once by the lane that
// comes last. Where the elements lie is drawn in common/ptx/matrix.h.
#include <cstring>

#include "include/simt_matrix.h"
#include "instruction.h"

namespace simt {

namespace {

// What every lane hands to the collective: who calls, and, in what derives from it, its operands.
struct WarpCall {
    const char *what, *file;
    int line;
};

struct MatrixCall : WarpCall {
    uint32_t *registers;
    uint32_t address;
    int count;
    bool transposed;
};

struct MultiplyCall : WarpCall {
    float *d;
    const uint32_t *a, *b;
};

template <class Call> Call &call_of(void *const lane[32], int i) { return *static_cast<Call *>(lane[i]); }

// Runs `body` once all 32 lanes have come. Whoever comes finds out whether a lane is missing for good, so the
// last one knows that there are 32.
void whole_warp(WarpCall &call, CollectiveBody body) {
    const Worker &worker = *current_worker;
    const Fiber &me = *worker.current;
    const Warp &warp = worker.warps[size_t(me.warp)];
    if (warp.lanes != ~0u || warp.exited) {
        std::string missing = warp.exited
                                  ? format("lanes 0x%08x of warp %d have returned", warp.exited, me.warp)
                                  : format("warp %d has only %d", me.warp, __builtin_popcount(warp.lanes));
        stop_block(cudaErrorLaunchFailure,
                   format("%s takes all 32 lanes of a warp, but %s", call.what, missing.c_str()),
                   place_of(call.file, call.line));
    }
    warp_collective(call.what, ~0u, body, &call, call.file, call.line);
}

// The same instruction at two places is two instructions: their lanes do not wait for each other on a GPU.
void check_same_place(void *const lane[32]) {
    const WarpCall &first = call_of<WarpCall>(lane, 0);
    for (int i = 1; i < warp_size; i++) {
        const WarpCall &other = call_of<WarpCall>(lane, i);
        if (other.line == first.line && (other.file == first.file || !strcmp(other.file, first.file)))
            continue;
        stop_block(
            cudaErrorLaunchFailure,
            format("divergent warp: lane 0 is at %s in %s:%d while lane %d is at one in %s:%d; all lanes "
                   "must execute the same one",
                   first.what, short_path(first.file).c_str(), first.line, i, short_path(other.file).c_str(),
                   other.line));
    }
}

// ---- ldmatrix and stmatrix ----

using Matrix = uint16_t[8][8];
constexpr size_t row_bytes = sizeof(uint16_t[8]);

// Row `row` of matrix `matrix` in shared memory, touched by the lane whose address it is: a fault is that
// thread's, though the last lane runs all this.
char *touch_row(Worker &worker, void *const lane[32], uintptr_t place, int matrix, int row, bool write) {
    Fiber *me = worker.current;
    int i = 8 * matrix + row, thread = me->warp * warp_size + i;
    const MatrixCall &call = call_of<MatrixCall>(lane, i);
    worker.current = &worker.fibers[size_t(thread)];
    char *bytes = touch_shared(worker, thread, place, call.what, call.address, row_bytes, row_bytes, write);
    worker.current = me;
    return bytes;
}

// One request of the warp.
void count_matrix(Worker &worker, uintptr_t place, void *const lane[32], int matrices, bool store) {
    if (!worker.profiling) return;
    uint64_t address[warp_size];
    for (int i = 0; i < warp_size; i++) address[i] = call_of<MatrixCall>(lane, i).address;
    AccessKind kind = store ? AccessKind::matrix_store : AccessKind::matrix_load;
    worker.traffic.matrix_request({place, nullptr, 0, row_bytes, kind, true}, address, matrices);
}

// The two elements that lane `i` holds of a matrix; the first is the low half of its register.
struct Pair {
    int row[2], column[2];
};
Pair pair_of_lane(int i, bool transposed) {
    int along = 2 * (i % 4), across = i / 4;
    if (transposed) return {{along, along + 1}, {across, across}};
    return {{across, across}, {along, along + 1}};
}

void load_body(void *const lane[32], unsigned) {
    check_same_place(lane);
    Worker &worker = *current_worker;
    const MatrixCall first = call_of<MatrixCall>(lane, 0);
    uintptr_t place = place_of(first.file, first.line);
    for (int matrix = 0; matrix < first.count; matrix++) {
        Matrix element;
        for (int row = 0; row < 8; row++)
            memcpy(element[row], touch_row(worker, lane, place, matrix, row, false), row_bytes);
        for (int i = 0; i < warp_size; i++) {
            Pair at = pair_of_lane(i, first.transposed);
            call_of<MatrixCall>(lane, i).registers[matrix] =
                element[at.row[0]][at.column[0]] | uint32_t(element[at.row[1]][at.column[1]]) << 16;
        }
    }
    count_matrix(worker, place, lane, first.count, false);
}

void store_body(void *const lane[32], unsigned) {
    check_same_place(lane);
    Worker &worker = *current_worker;
    const MatrixCall first = call_of<MatrixCall>(lane, 0);
    uintptr_t place = place_of(first.file, first.line);
    for (int matrix = 0; matrix < first.count; matrix++) {
        Matrix element;
        for (int i = 0; i < warp_size; i++) {
            Pair at = pair_of_lane(i, first.transposed);
            uint32_t value = call_of<MatrixCall>(lane, i).registers[matrix];
            element[at.row[0]][at.column[0]] = uint16_t(value & 0xffff);
            element[at.row[1]][at.column[1]] = uint16_t(value >> 16);
        }
        for (int row = 0; row < 8; row++)
            memcpy(touch_row(worker, lane, place, matrix, row, true), element[row], row_bytes);
    }
    count_matrix(worker, place, lane, first.count, true);
}

// Their names tell them apart as well: lanes at different ones are a divergent warp.
const char *matrix_name(bool store, int count, bool transposed) {
    static const char *const names[2][2][3] = {
        {{"ldmatrix.x1", "ldmatrix.x2", "ldmatrix.x4"},
         {"ldmatrix.x1.trans", "ldmatrix.x2.trans", "ldmatrix.x4.trans"}},
        {{"stmatrix.x1", "stmatrix.x2", "stmatrix.x4"},
         {"stmatrix.x1.trans", "stmatrix.x2.trans", "stmatrix.x4.trans"}}};
    return names[store][transposed][count / 2];
}

// ---- mma.sync ----

// Products of two fp16 or bf16 numbers are exact in double; their sum with D is rounded to fp32 once (and in
// double, far below that). A tensor core sums up to 16 products and D at once, aligned to the largest of them
// and cut off a few bits below fp32's last, and cuts the result off as well; the PTX ISA leaves it open. So a
// GPU's results differ from these by some units in the last place of the largest term. NaN and infinities are
// IEEE 754's on both, and subnormal numbers count.
template <float (*widen)(uint16_t)> void multiply_body(void *const lane[32], unsigned) {
    check_same_place(lane);
    constexpr int rows = 16, columns = 8, depth = 16;
    using Columns = double __attribute__((vector_size(16)));  // two: what any processor adds at once
    uint16_t a_bits[rows][depth], b_bits[depth][columns];
    alignas(16) double a[rows][depth], b[depth][columns], d[rows][columns];
    for (int i = 0; i < warp_size; i++) {
        const MultiplyCall &call = call_of<MultiplyCall>(lane, i);
        int g = i / 4, t = 2 * (i % 4);
        memcpy(&a_bits[g][t], &call.a[0], sizeof call.a[0]);
        memcpy(&a_bits[g + 8][t], &call.a[1], sizeof call.a[1]);
        memcpy(&a_bits[g][t + 8], &call.a[2], sizeof call.a[2]);
        memcpy(&a_bits[g + 8][t + 8], &call.a[3], sizeof call.a[3]);
        b_bits[t][g] = uint16_t(call.b[0] & 0xffff);
        b_bits[t + 1][g] = uint16_t(call.b[0] >> 16);
        b_bits[t + 8][g] = uint16_t(call.b[1] & 0xffff);
        b_bits[t + 9][g] = uint16_t(call.b[1] >> 16);
        d[g][t] = double(call.d[0]);
        d[g][t + 1] = double(call.d[1]);
        d[g + 8][t] = double(call.d[2]);
        d[g + 8][t + 1] = double(call.d[3]);
    }
    for (int m = 0; m < rows; m++)
        for (int k = 0; k < depth; k++) a[m][k] = double(widen(a_bits[m][k]));
    for (int k = 0; k < depth; k++)
        for (int n = 0; n < columns; n++) b[k][n] = double(widen(b_bits[k][n]));
    for (int m = 0; m < rows; m++) {
        Columns sum[columns / 2];
        memcpy(sum, d[m], sizeof sum);
        for (int k = 0; k < depth; k++) {
            Columns row[columns / 2];
            memcpy(row, b[k], sizeof row);
            sum[0] += a[m][k] * row[0];  // four sums in registers, which no compiler makes of a loop here
            sum[1] += a[m][k] * row[1];
            sum[2] += a[m][k] * row[2];
            sum[3] += a[m][k] * row[3];
        }
        memcpy(d[m], sum, sizeof sum);
    }
    auto store = [](float &to, double sum) {
        float value = float(sum);
        to = value == value ? value : float_of_bits(0x7fffffffu);  // the NaN of a GPU
    };
    for (int i = 0; i < warp_size; i++) {
        float *result = call_of<MultiplyCall>(lane, i).d;
        int g = i / 4, t = 2 * (i % 4);
        store(result[0], d[g][t]);
        store(result[1], d[g][t + 1]);
        store(result[2], d[g + 8][t]);
        store(result[3], d[g + 8][t + 1]);
    }
    current_worker->counters.tensor_flops += 2 * rows * columns * depth;
}

}  // namespace

void load_matrices(uint32_t *registers, int count, bool transposed, uint32_t address, const char *file,
                   int line) {
    MatrixCall call{
        {matrix_name(false, count, transposed), file, line}, registers, address, count, transposed};
    whole_warp(call, load_body);
}

void store_matrices(uint32_t address, const uint32_t *registers, int count, bool transposed, const char *file,
                    int line) {
    MatrixCall call{{matrix_name(true, count, transposed), file, line},
                    const_cast<uint32_t *>(registers),  // only read
                    address,
                    count,
                    transposed};
    whole_warp(call, store_body);
}

void multiply_fp16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line) {
    MultiplyCall call{{"mma.m16n8k16.f16", file, line}, d, a, b};
    whole_warp(call, multiply_body<float_from_fp16>);
}

void multiply_bf16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line) {
    MultiplyCall call{{"mma.m16n8k16.bf16", file, line}, d, a, b};
    whole_warp(call, multiply_body<float_from_bf16>);
}

}  // namespace simt
