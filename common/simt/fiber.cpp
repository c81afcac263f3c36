// fiber.cpp - switching stacks. A switch saves the registers that a C function must preserve, and nothing
// else: about 20 instructions on x86-64 (System V ABI 3.2.1) and 30 on aarch64 (AAPCS64 6.1).
#include <cstring>

#include "internal.h"

#if defined(__APPLE__)
#define SYMBOL(name) "_" #name
#define FUNCTION_TYPE(name)
#else
#define SYMBOL(name) #name
#if defined(__x86_64__)
#define FUNCTION_TYPE(name) ".type " #name ", @function\n"
#else
#define FUNCTION_TYPE(name) ".type " #name ", %function\n"
#endif
#endif

#if defined(__x86_64__)
asm(".text\n.globl " SYMBOL(simt_switch) "\n" FUNCTION_TYPE(simt_switch) SYMBOL(simt_switch) ":\n"
                                                                                             R"(
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
constexpr size_t saved_words = 6;  // below the return address
constexpr size_t entry_word = 6;   // the return address itself
#elif defined(__aarch64__)
asm(".text\n.globl " SYMBOL(simt_switch) "\n" FUNCTION_TYPE(simt_switch) SYMBOL(simt_switch) ":\n"
                                                                                             R"(
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
constexpr size_t saved_words = 20;
constexpr size_t entry_word = 11;  // x30, the link register
#else
#error "the CPU backend knows x86-64 and aarch64; add simt_switch for this processor here"
#endif

#if defined(__linux__)
asm(".section .note.GNU-stack, \"\", %progbits\n.text\n");
#endif

void *simt::fiber_prepare(char *stack_top, void (*entry)()) {
    // The entry is "returned" to, so the stack must look as it does just after a call: on x86-64 the stack
    // pointer is 8 below a multiple of 16 then, on aarch64 a multiple of 16.
    uintptr_t top = (reinterpret_cast<uintptr_t>(stack_top) & ~uintptr_t(15)) - 64;
    void **frame = reinterpret_cast<void **>(top);
#if defined(__x86_64__)
    frame -= 1;  // a null return address above the entry: debuggers end the call stack here
    *frame = nullptr;
    frame -= 1;
    frame -= saved_words;
#else
    frame -= saved_words;
#endif
    memset(frame, 0, saved_words * sizeof *frame);
    frame[entry_word] = reinterpret_cast<void *>(entry);
    return frame;
}
