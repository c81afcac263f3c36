// math_constants.h - CUDA's names for special values and common constants, on the CPU.
#ifndef SIMT_MATH_CONSTANTS_H
#define SIMT_MATH_CONSTANTS_H

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("0x3fffff")  // 0x7fffffff, the NaN that the GPU makes
#define CUDART_MIN_DENORM_F 0x1p-149f
#define CUDART_MAX_NORMAL_F 0x1.fffffep127f
#define CUDART_NEG_ZERO_F (-0.0f)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_SQRT_TWO_F 1.414213562f
#define CUDART_PI_F 3.141592654f
#define CUDART_PIO2_F 1.570796327f
#define CUDART_L2E_F 1.442695041f  // log2 e
#define CUDART_LN2_F 0.693147181f  // log 2
#define CUDART_LG2_F 0.301029996f  // log10 2
#define CUDART_LGE_F 0.434294482f  // log10 e

#define CUDART_INF __builtin_inf()
#define CUDART_NAN (-__builtin_nan(""))
#define CUDART_SQRT_TWO 1.4142135623730951
#define CUDART_PI 3.1415926535897931
#define CUDART_L2E 1.4426950408889634
#define CUDART_LN2 0.69314718055994529

#endif
