// core_races.cu - cpu backend only: planted races, each found with the lines of both accesses, and the same
// kernels without the fault, which must be silent under every schedule.
#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/ptx.h"
#include "fault_capture.h"

// clang-format off
// Each access that races has a line of its own; LINE_OF counts back to it.
#define LINE_OF(lines_above) (__LINE__ - (lines_above))

// A tile that all threads fill and then read, several times over.
template <bool before_read, bool before_write> __global__ void tile_rounds(float *out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = -1;
    __syncthreads();  // no thread reads what was never written
    float sum = 0;
    for (int round = 0; round < 3; round++) {
        tile[threadIdx.x] = (float)round;
        if (before_read) __syncthreads();  // tile is whole
        sum += tile[63 - threadIdx.x];
        if (before_write) __syncthreads();  // nobody still reads this round
    }
    out[64 * blockIdx.x + threadIdx.x] = sum;
}
constexpr int tile_write = LINE_OF(7), tile_read = LINE_OF(5);

template <bool ordered> __global__ void warp_exchange(float *out) {
    __shared__ float value[32];
    value[threadIdx.x] = -1;
    __syncwarp();  // no lane reads what was never written
    value[threadIdx.x] = (float)threadIdx.x;
    if (ordered) __syncwarp();  // the neighbour's value is written
    float other = value[threadIdx.x ^ 1];
    float more = __shfl_xor_sync(0xffffffffu, other, 2);  // a shuffle orders nothing
    if (ordered) __syncwarp();  // everybody has read
    value[threadIdx.x] = other + more;
    out[threadIdx.x] = value[threadIdx.x];
}
constexpr int exchange_first = LINE_OF(8), exchange_read = LINE_OF(6), exchange_second = LINE_OF(3);

// A ring of two stages handed from warp 0 to warp 1; given back before or after it was read.
template <bool after> __global__ void ring(float *out) {
    __shared__ float stage[2][32];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float sum = 0;
    for (int i = 0; i < 6; i++) {
        if (warp == 0) {
            if (i >= 2) bar_sync(3 + i % 2, 64);  // the stage was read
            stage[i % 2][lane] = (float)i;
            bar_arrive(1 + i % 2, 64);  // the stage is full
        } else {
            bar_sync(1 + i % 2, 64);  // the stage is full
            if (!after && i < 4) bar_arrive(3 + i % 2, 64);
            sum += stage[i % 2][31 - lane];
            if (after && i < 4) bar_arrive(3 + i % 2, 64);  // the stage was read
        }
    }
    if (warp == 1) out[lane] = sum;
}
constexpr int ring_write = LINE_OF(11), ring_read = LINE_OF(6);

__global__ void write_write(float *out) {
    __shared__ float value;
    if (threadIdx.x % 32 == 0) value = (float)threadIdx.x;
    __syncthreads();  // value is written
    out[threadIdx.x] = value;
}
constexpr int both_write = LINE_OF(4);

__global__ void neighbouring_halves(unsigned short *out) {
    __shared__ unsigned char bytes[64];
    bytes[threadIdx.x] = (unsigned char)threadIdx.x;  // no race: every thread has a byte of its own
    __syncthreads();  // bytes are written
    out[threadIdx.x] = bytes[63 - threadIdx.x];
}

// Threads that return early take part in what the others' barriers order.
__global__ void early_return(float *out) {
    __shared__ float value[64];
    value[threadIdx.x] = 1;
    if (threadIdx.x >= 32) return;
    __syncthreads();  // value is written, also by those that returned
    out[threadIdx.x] = value[threadIdx.x + 32];
}

__global__ void shared_counter(int *out) {
    __shared__ int counter;
    if (threadIdx.x == 0) counter = 0;
    __syncthreads();  // counter is 0
    atomicAdd(&counter, 1);
    __syncthreads();  // all have counted
    out[threadIdx.x] = counter;
}

// ---- between blocks ----

__global__ void same_address(float *out) {
    if (threadIdx.x == 0) out[0] = (float)blockIdx.x;
}
constexpr int same_write = LINE_OF(2);

__global__ void neighbour_block(float *data, float *out) {
    data[64 * blockIdx.x + threadIdx.x] = 1;
    out[64 * blockIdx.x + threadIdx.x] = data[(64 * blockIdx.x + threadIdx.x + 64) % (64 * gridDim.x)];
}
constexpr int neighbour_write = LINE_OF(3), neighbour_read = LINE_OF(2);

// Neighbouring bytes, of which some pairs are shared by two blocks.
__global__ void odd_bytes(unsigned char *out) {
    if (threadIdx.x < 33) out[33 * blockIdx.x + threadIdx.x] = 3;
}

// The last block to finish adds up what all have written. Ordered by the atomic, or not.
template <bool ordered> __global__ void last_block(float *part, unsigned *counter, float *out) {
    __shared__ unsigned ticket;
    part[64 * blockIdx.x + threadIdx.x] = 1;
    __threadfence();
    __syncthreads();  // the whole block has written
    if (threadIdx.x == 0) ticket = ordered ? atomicAdd(counter, 1u) : gridDim.x - 1;
    __syncthreads();  // ticket is written
    if (ticket != gridDim.x - 1) return;
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++) sum += part[64 * b + threadIdx.x];
    out[ordered ? threadIdx.x : 64 * blockIdx.x + threadIdx.x] = sum;
}
// ---- between launches, of which the second may begin early ----

__global__ void fill(float *data) {
    griddepcontrol_launch_dependents();
    data[64 * blockIdx.x + threadIdx.x] = 1;
}
constexpr int fill_write = LINE_OF(2);

enum waiting { by_nobody, by_one, by_all };
template <enum waiting who> __global__ void use(float *data, float *out) {
    if (who == by_all || (who == by_one && threadIdx.x == 0)) griddepcontrol_wait();
    __syncthreads();  // who has not waited sees what thread 0 has
    out[64 * blockIdx.x + threadIdx.x] = data[64 * blockIdx.x + threadIdx.x];
}
constexpr int use_read = LINE_OF(2);

__global__ void fill_again(float *data) {
    data[64 * blockIdx.x + threadIdx.x] = 2;
    griddepcontrol_wait();
}
constexpr int again_write = LINE_OF(3);

// clang-format on

// Launches kernel(arguments), which may begin before the launch before has ended, if it is early.
template <class... Parameters, class... Arguments>
static void launch_early(int early, void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early;
    cudaLaunchConfig_t config = {};
    config.gridDim = 3;
    config.blockDim = 64;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess);
}

// ---- what must be said ----

static const char *line_text(int line) {
    static char text[64];
    snprintf(text, sizeof text, "core_races.cu:%d", line);
    return text;
}

static void check_race(const char *kind, int first, int second, const char *where) {
    end_capture();
    char one[64], two[64];
    snprintf(one, sizeof one, "core_races.cu:%d", first);
    snprintf(two, sizeof two, "core_races.cu:%d", second);
    int ok = CHECK(cudaDeviceSynchronize() == cudaSuccess);
    ok &= CHECK(simt_take_races() > 0);
    ok &= CHECK(strstr(message, kind) != nullptr);
    ok &= CHECK(strstr(message, one) != nullptr && strstr(message, two) != nullptr);
    ok &= CHECK(strstr(message, where) != nullptr);
    if (!ok)
        fprintf(stderr, "wanted '%s' at lines %d and %d, '%s'; got:\n%s", kind, first, second, where,
                message);
}

static void check_silent(void) {
    end_capture();
    CHECK(cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess);
    CHECK(simt_take_races() == 0);
    if (!CHECK(message[0] == 0)) fprintf(stderr, "wanted silence, got:\n%s", message);
}

static void check_planted(float *data, float *out) {
    begin_capture();
    tile_rounds<false, true><<<1, 64>>>(out);
    check_race("read after write", tile_write, tile_read, "shared 'tile'");
    begin_capture();
    tile_rounds<true, false><<<1, 64>>>(out);
    check_race("write after read", tile_write, tile_read, "shared 'tile'");
    begin_capture();
    warp_exchange<false><<<1, 32>>>(out);
    check_race("shared 'value'", exchange_first, exchange_read, "of block 0");
    CHECK(strstr(message, line_text(exchange_second)) != nullptr);
    begin_capture();
    ring<false><<<1, 64>>>(out);
    check_race("write after read", ring_write, ring_read, "shared 'stage'");
    begin_capture();
    write_write<<<1, 64>>>(out);
    check_race("write after write", both_write, both_write, "shared 'value'");
    begin_capture();
    same_address<<<4, 32>>>(out);
    check_race("write after write between blocks", same_write, same_write, "of OUT");
    begin_capture();
    neighbour_block<<<4, 64>>>(data, out);
    check_race("between blocks", neighbour_write, neighbour_read, "of DATA");
    begin_capture();
    fill<<<3, 64>>>(data);
    launch_early(1, use<by_nobody>, data, out);
    check_race("read after write", fill_write, use_read, "griddepcontrol_wait");
    begin_capture();
    use<by_nobody><<<3, 64>>>(data, out);
    launch_early(1, fill_again, data);
    check_race("write after read", use_read, again_write, "griddepcontrol_wait");
    begin_capture();
    fill<<<3, 64>>>(data);
    launch_early(1, fill_again, data);
    check_race("write after write", fill_write, again_write, "of DATA");
}

static void check_right(float *data, unsigned *counter, float *out) {
    begin_capture();
    tile_rounds<true, true><<<3, 64>>>(out);
    warp_exchange<true><<<1, 32>>>(out);
    ring<true><<<1, 64>>>(out);
    neighbouring_halves<<<1, 64>>>((unsigned short *)out);
    odd_bytes<<<6, 64>>>((unsigned char *)out);
    early_return<<<1, 64>>>(out);
    shared_counter<<<1, 64>>>((int *)out);
    cudaMemset(counter, 0, sizeof *counter);
    last_block<true><<<5, 64>>>(data, counter, out);
    fill<<<3, 64>>>(data);
    launch_early(1, use<by_all>, data, out);
    launch_early(1, use<by_one>, data, out);
    launch_early(0, use<by_nobody>, data, out);
    launch_early(1, use<by_nobody>, data, data + 512);
    check_silent();
}

int main(void) {
    float *data, *out;
    unsigned *counter;
    CHECK(cudaMalloc(&data, 4096) == cudaSuccess && cudaMalloc(&out, 4096) == cudaSuccess);
    CHECK(cudaMalloc(&counter, sizeof *counter) == cudaSuccess);
    CHECK(cudaMemset(data, 0, 4096) == cudaSuccess);
    simt_name_memory(data, 4096, "DATA");
    simt_name_memory(out, 4096, "OUT");
    simt_set_sanitizing(1);
    for (unsigned long long schedule = 0; schedule < 20; schedule++) {
        simt_set_schedule(schedule);
        check_planted(data, out);
        check_right(data, counter, out);
    }
    simt_set_schedule(0);
    begin_capture();
    last_block<false><<<5, 64>>>(data, counter, out);
    end_capture();
    CHECK(cudaDeviceSynchronize() == cudaSuccess && simt_take_races() > 0);
    CHECK(strstr(message, "read after write between blocks") ||
          strstr(message, "write after read between blocks"));
    return check_done();
}
