// machine_code.h - the program's own instructions, as far as flops.cpp wants to know them (machine_code.cpp).
#ifndef SIMT_MACHINE_CODE_H
#define SIMT_MACHINE_CODE_H

#include <cstdint>
#include <string>
#include <vector>

namespace simt {

struct Instruction {
    uintptr_t address = 0;
    std::string operation, operands;
    uintptr_t target = 0;     // of a jump; 0: none, or not known
    bool jumps_away = false;  // does not go on to the next instruction
    bool anywhere = false;    // jumps to an address that it computes
    bool traced = false;      // the call that is counted
    bool converts = false;    // between integer and float, or it rounds to a whole number
    bool unclear = false;     // arithmetic of which it is not known how much was wanted
    unsigned char flops = 0, exponentials = 0;
};

// Every function of the program that has a traced call, instruction by instruction, at the addresses that it
// was linked for; each function is ended by an instruction with address 0. Empty if no disassembler is there
// or if it does not understand the program.
std::vector<Instruction> read_program();

}  // namespace simt

#endif
