// device.h - the device that a lab runs on, and memory on it that notices a kernel writing where
// it should not.
#ifndef DEVICE_H
#define DEVICE_H

#include <stddef.h>

#include "lab.h"
#include "message.h"

#ifdef SIMT_CPU
enum { ON_CPU = 1 };
#else
enum { ON_CPU = 0 };
#endif

struct device {
    char name[256];
    int major, minor;  // compute capability
    int multiprocessors;
    int clock_mhz, memory_clock_mhz;  // the highest it may run at; 0: not known
    size_t l2_bytes;
};

// Opens device 0 for this lab. Returns 0, or -1 with a sentence: no GPU, or one too old, and how to run on
// the CPU.
int device_open(const struct lab *lab, struct device *device, struct message *why);

// Dense tensor-core peak for that storage type with fp32 accumulation, in TFLOP/s, from the vendor's data
// sheets; 0 for a device that is not in the table, and on the cpu backend.
double device_peak_tflops(const struct device *device, enum dtype dtype);

// Device memory between two guard bands. Guards, and what poison fills, are 0xFF bytes: NaN in every storage
// type, so that whoever reads there shows it in the result. The cpu backend stops the kernel that touches a
// guard or reads poisoned memory before writing it.
struct buffer {
    void *data;  // 256-byte aligned
    size_t bytes;
    const char *name;
    char *base;
};

// Returns 0, or -1 with a sentence if the device has not that much memory left.
int buffer_make(struct buffer *buffer, size_t bytes, const char *name, struct message *why);
// Fills the guard bands anew, after a kernel wrote into them.
void buffer_set_guards(const struct buffer *buffer);
void buffer_free(struct buffer *buffer);
void buffer_poison(const struct buffer *buffer);
// The same with other bytes than 0xFF.
void buffer_fill(const struct buffer *buffer, int byte);
void buffer_upload(const struct buffer *buffer, const void *from);
void buffer_download(const struct buffer *buffer, void *to);
// 1 if both guard bands still hold what was put there; else 0 with a sentence: before or behind, how far.
int buffer_guards_intact(const struct buffer *buffer, struct message *why);

// Bytes that a buffer of this size takes from the device, guards and rounding included, and what it has left.
double buffer_cost(double bytes);
size_t device_free_bytes(void);

// Whether Nsight Compute, if the program runs under it, counts the following launches. Nothing else notices.
void device_set_counted(int on);

// "512 B", "34.4 GB": decimal units, as device memory is sold and traffic is measured.
const char *bytes_text(double bytes, char text[32]);

#endif
