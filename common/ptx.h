// ptx.h - one inline function for each hardware instruction that CUDA C has no name for. Under nvcc its body
// is the instruction; otherwise the CPU backend does what the PTX ISA says. Labs contain no inline assembly
// of their own.
//
// Addresses of shared memory are 32-bit numbers (shared_address), fragments are local arrays that are passed
// whole. What is asynchronous says in its comment what completes it, and which fence its data needs.
#ifndef PTX_H
#define PTX_H

#include "ptx/barrier.h"  // named barriers, mbarriers, proxy fences, electing a lane, register shares
#include "ptx/base.h"     // shared_address
#include "ptx/copy.h"     // cp.async, TMA and bulk copies
#include "ptx/flag.h"     // numbers in global memory that blocks wait for, loads that keep their order
#include "ptx/grid.h"     // launches that begin before the one before has ended
#include "ptx/math.h"     // exp2, conversions two and four at a time
#include "ptx/matrix.h"   // ldmatrix, stmatrix, mma.sync
#include "ptx/time.h"     // clocks, the number of the multiprocessor
#include "ptx/wgmma.h"    // products of a whole warpgroup from shared memory

#endif
