// namespaces.h - what Linux offers to keep a run apart without a container: spaces of its own for network,
// processes and files. Elsewhere, and where it is forbidden, these functions do nothing.
#ifndef NAMESPACES_H
#define NAMESPACES_H

#include "confine.h"

// Moves the calling process into spaces of its own, as far as it may, and returns which as bits of enum
// apart. Its next child is the first process of the new space of processes.
unsigned namespaces_enter(const struct limits *limits);

// 1 if that took a space of users, in which the caller is nobody in particular.
int namespaces_of_user(void);

// The caller ends when the process does that started it. (Linux only.)
void namespaces_end_with_parent(void);

// In the first process of its space: /proc shows that space alone.
void namespaces_own_processes(void);

#endif
