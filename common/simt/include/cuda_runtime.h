// cuda_runtime.h - what #include <cuda_runtime.h> means on the CPU: the runtime API for C and C++, and for
// C++ the device language as well.
#ifndef SIMT_CUDA_RUNTIME_H
#define SIMT_CUDA_RUNTIME_H

#include "vector_types.h"
#include "cuda_runtime_api.h"
#ifdef __cplusplus
#include "simt_device.h"
#endif

#endif
