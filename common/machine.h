// machine.h - the machine that the host side runs on.
#ifndef MACHINE_H
#define MACHINE_H

// Bytes of memory that this program may come to use: the machine's physical memory, or less if a container's
// limit says so. Past it, Linux does not fail the allocation: it kills the program that touches the memory.
double machine_memory_bytes(void);

#endif
