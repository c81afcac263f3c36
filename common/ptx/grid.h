// grid.h - a launch that begins before the one before it has ended (PTX ISA, "griddepcontrol"; sm_90).
//
// A kernel launched with cudaLaunchAttributeProgrammaticStreamSerialization may begin as soon as every block
// of the kernel before it in the stream has called griddepcontrol_launch_dependents or ended: what it does
// first, then runs beside the other's end. What that kernel writes it may touch only after
// griddepcontrol_wait, which waits until all of its blocks have ended. Without the attribute, and before
// sm_90, launches follow each other as ever and both functions do nothing.
#ifndef PTX_GRID_H
#define PTX_GRID_H

#include "base.h"

#if defined(__CUDACC__)
PTX_FN void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
PTX_FN void griddepcontrol_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#else
// Launches of the simulated GPU do not overlap. With --sanitize, touching what the kernel before has
// written, or writing what it has touched, without the wait is reported as the race that it is.
PTX_FN void griddepcontrol_launch_dependents() {}
PTX_FN void griddepcontrol_wait() { simt::griddepcontrol_wait(); }
#endif

#endif
