// machine_code.cpp - reads what objdump writes of this program, on x86-64 and aarch64. llvm-objdump writes
// nearly the same.
#include "machine_code.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <algorithm>

#include "internal.h"

namespace simt {

namespace {

bool starts_with(const std::string &text, const char *start) {
    return !text.compare(0, strlen(start), start);
}

// Of "4d70 <f+0x380>" or "0x1040 <expf@plt>": the address, and the name without what follows it.
uintptr_t target_of(const std::string &operands, std::string &name) {
    size_t open = operands.rfind('<'), end = operands.find_first_of("+@>", open);
    name = open == std::string::npos ? "" : operands.substr(open + 1, end - open - 1);
    if (open == std::string::npos || open == 0 || operands[open - 1] != ' ') return 0;
    size_t begin = operands.find_last_of(" ,\t", open - 2);
    begin = begin == std::string::npos ? 0 : begin + 1;
    return strtoull(operands.substr(begin, open - begin).c_str(), nullptr, 16);
}

// A call of (or a jump to) a function: what it is to us.
void look_at_callee(const std::string &name, Instruction &it) {
    it.traced = name == "__sanitizer_cov_trace_pc";
    it.exponentials = name == "expf" || name == "exp2f" || name == "exp10f";
    it.flops = name == "fmaf" ? 2 : name == "sqrtf" ? 1 : 0;
}

#if defined(__x86_64__)
const char *const disassemblers[] = {"objdump", "x86_64-linux-gnu-objdump", "llvm-objdump"};

void decode(Instruction &it) {
    const std::string &operation = it.operation, &operands = it.operands;
    std::string name;
    if (starts_with(operation, "call")) {
        target_of(operands, name);
        look_at_callee(name, it);
    } else if (starts_with(operation, "ret") || operation == "hlt" || operation == "ud2") {
        it.jumps_away = true;
    } else if (operation[0] == 'j') {
        it.jumps_away = starts_with(operation, "jmp");
        it.anywhere = operands[0] == '*';
        it.target = target_of(operands, name);
        if (it.anywhere) it.target = 0;
        look_at_callee(name, it);
    } else {
        std::string plain = operation.substr(operation[0] == 'v');
        bool scalar = plain.size() > 2 && !plain.compare(plain.size() - 2, 2, "ss");
        bool packed = plain.size() > 2 && !plain.compare(plain.size() - 2, 2, "ps");
        bool fused = starts_with(plain, "fmadd") || starts_with(plain, "fmsub") ||
                     starts_with(plain, "fnmadd") || starts_with(plain, "fnmsub");
        bool single = starts_with(plain, "add") || starts_with(plain, "sub") || starts_with(plain, "mul") ||
                      starts_with(plain, "div") || starts_with(plain, "sqrt");
        if (scalar) it.flops = fused ? 2 : single;
        it.unclear = packed && (fused || single || starts_with(plain, "hadd") || starts_with(plain, "dp"));
    }
}

// Conversions and roundings for which this processor has no instruction take arithmetic.
void find_conversions(std::vector<Instruction> &function) {
    for (size_t i = 0; i < function.size(); i++) {
        Instruction &it = function[i];
        // How many of its neighbours are this operation, with operands that begin so.
        auto near = [&](const char *operation, const char *operands, size_t before, size_t behind) {
            int found = 0;
            for (size_t at = i - std::min(i, before); at < std::min(i + behind + 1, function.size()); at++)
                found += at != i && starts_with(function[at].operation, operation) &&
                         starts_with(function[at].operands, operands);
            return found;
        };
        it.converts = starts_with(it.operation, "cvttss2si") || starts_with(it.operation, "cvtsi2ss");
        // rintf adds 2^23 and subtracts it again.
        if (starts_with(it.operation, "subss") && near("addss", it.operands.c_str(), 1, 0))
            it.converts = true;
        // To a 64-bit unsigned integer clang converts both x and x - 2^63, and takes the second if the first
        // is negative; from one both the number and its half, which is then doubled.
        if (starts_with(it.operation, "subss") && near("cvttss2si", "", 0, 1) &&
            near("cvttss2si", "", 8, 2) > 1 && near("sar", "$0x3f,", 8, 8))
            it.flops = 0;
        if (starts_with(it.operation, "addss") && near("cvtsi2ss", "", 1, 0) && near("and", "$0x1,", 8, 0) &&
            near("shr", "", 8, 0))
            it.flops = 0;
    }
}

#elif defined(__aarch64__)
const char *const disassemblers[] = {"objdump", "aarch64-linux-gnu-objdump", "llvm-objdump"};

void decode(Instruction &it) {
    const std::string &operation = it.operation, &operands = it.operands;
    std::string name;
    if (operation == "bl") {
        target_of(operands, name);
        look_at_callee(name, it);
    } else if (starts_with(operation, "ret") || operation == "udf" || operation == "brk") {
        it.jumps_away = true;
    } else if (operation == "br") {
        it.jumps_away = it.anywhere = true;
    } else if (operation == "b" || starts_with(operation, "b.") || operation == "cbz" ||
               operation == "cbnz" || operation == "tbz" || operation == "tbnz") {
        it.jumps_away = operation == "b";
        it.target = target_of(operands, name);
        if (operation == "b") look_at_callee(name, it);
    } else if (operation[0] == 'f') {
        bool fused = operation == "fmadd" || operation == "fmsub" || operation == "fnmadd" ||
                     operation == "fnmsub" || operation == "fmla" || operation == "fmls";
        bool single = operation == "fadd" || operation == "fsub" || operation == "fmul" ||
                      operation == "fdiv" || operation == "fsqrt" || operation == "fnmul";
        if (operands[0] == 's') it.flops = fused ? 2 : single;
        it.unclear = operands[0] == 'v' && (fused || single);
    }
}

void find_conversions(std::vector<Instruction> &) {}

#else
const char *const disassemblers[] = {"objdump"};
void decode(Instruction &it) { it.unclear = true; }
void find_conversions(std::vector<Instruction> &) {}
#endif

// ---- Lines ----

// The operation is the first word that is no prefix.
void split(const char *text, std::string &operation, std::string &operands) {
    static const char *const prefixes[] = {"bnd", "notrack", "lock", "rep", "repz", "repnz", "data16"};
    bool is_prefix = true;
    while (is_prefix) {
        text += strspn(text, " \t");
        size_t length = strcspn(text, " \t\n");
        operation.assign(text, length);
        text += length;
        is_prefix = false;
        for (const char *prefix : prefixes) is_prefix = is_prefix || operation == prefix;
    }
    text += strspn(text, " \t");
    operands.assign(text, strcspn(text, "\n"));
}

}  // namespace

std::vector<Instruction> read_program() {
    std::vector<Instruction> program, function;
    for (const char *tool : disassemblers) {
        FILE *pipe = popen(
            (std::string(tool) + " -d --no-show-raw-insn " + quoted_program() + " 2>/dev/null").c_str(), "r");
        if (!pipe) continue;
        bool traced = false;
        auto end_function = [&] {
            if (traced) {
                find_conversions(function);
                program.insert(program.end(), function.begin(), function.end());
                program.push_back(Instruction());
            }
            function.clear();
            traced = false;
        };
        char text[4096];
        while (fgets(text, sizeof text, pipe)) {
            char *colon = strchr(text, ':');
            if (!colon) continue;
            if (colon > text && colon[-1] == '>') end_function();
            char *end;
            Instruction it;
            it.address = strtoull(text, &end, 16);
            if (end != colon || !it.address) continue;
            split(colon + 1, it.operation, it.operands);
            if (it.operation.empty()) continue;
            decode(it);
            traced = traced || it.traced;
            function.push_back(it);
        }
        end_function();
        pclose(pipe);
        if (!program.empty()) return program;
    }
    return program;
}

}  // namespace simt
