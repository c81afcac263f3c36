#include "device.h"

#include <string.h>

#ifndef SIMT_CPU
#include <cuda_profiler_api.h>
#endif

// A tile of 128 rows of 128 two-byte numbers: what a kernel that forgets to check a tail reaches
// past the end.
enum { GUARD_BYTES = 32 * 1024, ALIGNMENT = 256 };

void lab_cuda_check(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) return;
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s failed: %s (%s)\n", file, line, call, cudaGetErrorName(status),
            cudaGetErrorString(status));
    exit(LAB_WRONG);
}

const char *bytes_text(double bytes, char text[32]) {
    static const char *const units[] = {"B", "kB", "MB", "GB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 3) bytes /= 1000, ++unit;
    snprintf(text, 32, bytes >= 1e12 ? "%.2g %s" : unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

// ---------------------------------------------------------------- the device

static int attribute(enum cudaDeviceAttr which) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, 0) != cudaSuccess) {
        (void)cudaGetLastError();  // a device may not know it; that is no error of the kernels'
        return 0;
    }
    return value;
}

int device_open(const struct lab *lab, struct device *device, struct message *why) {
    memset(device, 0, sizeof *device);
    // "lab01_naive" is lab 01 for ./lab.
    const char *digits = lab->name + strcspn(lab->name, "0123456789");
    int digit_count = (int)strspn(digits, "0123456789");
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0)
        return fail(why,
                    "%s needs an NVIDIA GPU, and none can be used here (%s). On the CPU: ./lab run %.*s "
                    "--backend cpu",
                    lab->name, status != cudaSuccess ? cudaGetErrorString(status) : "no device", digit_count,
                    digits);
    CUDA_CHECK(cudaSetDevice(0));
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->major = attribute(cudaDevAttrComputeCapabilityMajor);
    device->minor = attribute(cudaDevAttrComputeCapabilityMinor);
    device->multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    device->clock_mhz = attribute(cudaDevAttrClockRate) / 1000;
    device->memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate) / 1000;
    device->l2_bytes = (size_t)attribute(cudaDevAttrL2CacheSize);
    if (!ON_CPU && device->major * 10 + device->minor < lab->min_sm)
        return fail(
            why,
            "%s needs compute capability %d.%d; this %s has %d.%d. On the CPU: ./lab run %.*s --backend cpu",
            lab->name, lab->min_sm / 10, lab->min_sm % 10, device->name, device->major, device->minor,
            digit_count, digits);
    return 0;
}

double device_peak_tflops(const struct device *device, enum dtype dtype) {
    // fp16 and bf16, dense, fp32 accumulation. The first name that the device's name contains counts.
    static const struct {
        const char *name;
        double tflops;
    } peaks[] = {{"B200", 2250},      {"H200", 989.5}, {"GH200", 989.5}, {"H100 PCIe", 756},
                 {"H100 NVL", 835.5}, {"H100", 989.5}, {"A100", 312},    {"A800", 312},
                 {"A30", 165},        {"A40", 149.7},  {"A10", 125},     {"A6000", 154.8},
                 {"L40S", 362},       {"L40", 181},    {"L4", 121},      {"6000 Ada", 364.2},
                 {"4090", 165.2},     {"4080", 97.5},  {"3090", 71.2},   {"3080", 59.5},
                 {"V100", 125},       {"T4", 65.1}};
    if (ON_CPU) return 0;
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; ++i)
        if (strstr(device->name, peaks[i].name)) {
            int has_fp8 = device->major * 10 + device->minor >= 89;
            if (dtype_bytes(dtype) == 1) return has_fp8 ? 2 * peaks[i].tflops : peaks[i].tflops;
            return peaks[i].tflops;
        }
    return 0;
}

void device_set_counted(int on) {
#ifdef SIMT_CPU
    (void)on;  // the simulated device is asked directly: profile.h
#else
    CUDA_CHECK(on ? cudaProfilerStart() : cudaProfilerStop());
#endif
}

// ---------------------------------------------------------------- memory

static size_t with_guards(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + 2 * (size_t)GUARD_BYTES;
}

double buffer_cost(double bytes) { return bytes < 0x1p62 ? (double)with_guards((size_t)bytes) : bytes; }

size_t device_free_bytes(void) {
    size_t free_bytes = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

int buffer_make(struct buffer *buffer, size_t bytes, const char *name, struct message *why) {
    memset(buffer, 0, sizeof *buffer);
    size_t cost = with_guards(bytes), left = device_free_bytes();
    void *base = NULL;
    char need[32], have[32];
    if (cost > left || cudaMalloc(&base, cost) != cudaSuccess) {
        (void)cudaGetLastError();
        return fail(why, "%s needs %s of device memory, %s are free", name, bytes_text((double)bytes, need),
                    bytes_text((double)left, have));
    }
    buffer->base = base, buffer->data = buffer->base + GUARD_BYTES, buffer->bytes = bytes,
    buffer->name = name;
    CUDA_CHECK(cudaMemset(base, 0xff, cost));
    buffer_set_guards(buffer);
#ifdef SIMT_CPU
    simt_name_memory(buffer->data, bytes, name);
#endif
    return 0;
}

void buffer_set_guards(const struct buffer *buffer) {
    char *behind = buffer->base + GUARD_BYTES + buffer->bytes;
    size_t behind_bytes = with_guards(buffer->bytes) - GUARD_BYTES - buffer->bytes;
    CUDA_CHECK(cudaMemset(buffer->base, 0xff, GUARD_BYTES));
    CUDA_CHECK(cudaMemset(behind, 0xff, behind_bytes));
#ifdef SIMT_CPU
    simt_mark_guard(buffer->base, GUARD_BYTES);
    simt_mark_guard(behind, behind_bytes);
#endif
}

void buffer_free(struct buffer *buffer) {
    if (buffer->base) CUDA_CHECK(cudaFree(buffer->base));
    memset(buffer, 0, sizeof *buffer);
}

void buffer_poison(const struct buffer *buffer) { buffer_fill(buffer, 0xff); }

void buffer_fill(const struct buffer *buffer, int byte) {
    if (buffer->bytes == 0) return;
    CUDA_CHECK(cudaMemset(buffer->data, byte, buffer->bytes));
#ifdef SIMT_CPU
    simt_mark_unwritten(buffer->data, buffer->bytes);
#endif
}

void buffer_upload(const struct buffer *buffer, const void *from) {
    if (buffer->bytes) CUDA_CHECK(cudaMemcpy(buffer->data, from, buffer->bytes, cudaMemcpyHostToDevice));
}

void buffer_download(const struct buffer *buffer, void *to) {
    if (buffer->bytes) CUDA_CHECK(cudaMemcpy(to, buffer->data, buffer->bytes, cudaMemcpyDeviceToHost));
}

int buffer_guards_intact(const struct buffer *buffer, struct message *why) {
    static unsigned char guard[GUARD_BYTES + ALIGNMENT];
    size_t behind = with_guards(buffer->bytes) - GUARD_BYTES - buffer->bytes;
    CUDA_CHECK(cudaMemcpy(guard, buffer->base, GUARD_BYTES, cudaMemcpyDeviceToHost));
    for (size_t i = GUARD_BYTES; i-- > 0;)
        if (guard[i] != 0xff) {
            fail(why, "wrote %zu bytes before the beginning of %s", GUARD_BYTES - i, buffer->name);
            return 0;
        }
    CUDA_CHECK(cudaMemcpy(guard, (char *)buffer->data + buffer->bytes, behind, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < behind; ++i)
        if (guard[i] != 0xff) {
            fail(why, "wrote %zu bytes past the end of %s", i, buffer->name);
            return 0;
        }
    return 1;
}
