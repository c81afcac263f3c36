// headers.h - what every lab includes: compiled once for all wrong kernels (CMakeLists.txt).
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>

#include "common/attention.h"
#include "common/lab.h"
