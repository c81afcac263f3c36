# Two ways to compile the same .cu files.
#
#   gpu   nvcc, as usual.
#   cpu   no CUDA toolkit: simt-rewrite turns launches, kernel heads and __shared__ of a .cu into C++, line by line, and
#         g++ or clang++ compiles the result against common/simt/include. -fsanitize=thread makes the compiler report
#         every load and store to common/simt, which checks and counts them; the sanitizer's own library is not linked.
#
# What this file gives:
#   add_cuda_executable(NAME a.cu [b.c ...] [ARCH 90a ...])   a program on the chosen backend
#   add_lab(labNN_name [ARCH 90a ...])   labNN_name/labNN_name.cu, linked with lab_common; adds to global property LABS
#   lab_common   common/*.c: what the labs share on the host
#   simt         common/simt: the simulated device (cpu backend only)
#   LAB_C_FLAGS  warnings and arithmetic of all our C11, for programs added by add_executable (tests)
#   STRICT       option: what a .cu file leaves unused is an error, too
#
# ARCH names the only GPU architectures that a program is compiled for; to the cpu backend 90a says that it uses wgmma.

set(BACKEND cpu CACHE STRING "cpu (simulated device, no CUDA needed) or gpu (nvcc)")
set_property(CACHE BACKEND PROPERTY STRINGS cpu gpu)
if(NOT BACKEND MATCHES "^(cpu|gpu)$")
  message(FATAL_ERROR "BACKEND is '${BACKEND}'; it must be cpu or gpu")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} is too old: the labs need g++ 11 or clang++ 14 (set CXX and CC)")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "clang++ ${CMAKE_CXX_COMPILER_VERSION} is too old: the labs need clang++ 14 or g++ 11 (set CXX and CC)")
endif()

# Optimisation is chosen here and not by CMake's build types (empty unless asked for), because the cpu backend counts
# accesses as the compiler emits them: -O1 keeps one access for each one written. Only Debug changes anything. -g1: lines, for
# messages; variables, which only a debugger asks for, would take a quarter of the time to compile and half of it to link.
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(HOST_OPTIMISE -O0 -g3)
  set(KERNEL_OPTIMISE -O0 -g3)
  set(SIMT_OPTIMISE -O2 -g)
else()
  set(HOST_OPTIMISE -O2 -g1)
  set(KERNEL_OPTIMISE -O1 -g1)
  set(SIMT_OPTIMISE -O2 -g1)
endif()
# A table of kernels leaves out, at the end of an entry, what that kernel has not: it is 0.
set(WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers)

# All warnings are errors, but for one kind in .cu files: whoever tries something out leaves a variable or a function unused,
# and wants to see what happens, not to tidy up first. The project's own check (.ci/run) is STRICT.
option(STRICT "what a .cu file leaves unused is an error and not a warning" OFF)
set(UNUSED_IS_NO_ERROR)
if(NOT STRICT)
  foreach(kind but-set-parameter but-set-variable const-variable function label local-typedefs parameter value variable)
    list(APPEND UNUSED_IS_NO_ERROR -Wno-error=unused-${kind})
  endforeach()
endif()

# C11 without contraction to fused multiply-add: the same numbers on every machine.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(LAB_C_FLAGS ${HOST_OPTIMISE} ${WARNINGS} -ffp-contract=off)

include_directories("${PROJECT_SOURCE_DIR}")  # #include "common/lab.h"
find_package(Threads REQUIRED)

# --- the simulated device -------------------------------------------------------------------------------------------
if(BACKEND STREQUAL "cpu")
  add_compile_definitions(SIMT_CPU=1)
  include_directories("${PROJECT_SOURCE_DIR}/common/simt/include")

  add_executable(simt-rewrite common/simt/rewrite.c)
  target_compile_options(simt-rewrite PRIVATE ${LAB_C_FLAGS})

  # The runtime is never instrumented (it is what the instrumentation calls) and always optimised, for stepping too.
  file(GLOB simt_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/common/simt/*.cpp")
  add_library(simt STATIC ${simt_sources})
  target_compile_options(simt PRIVATE ${SIMT_OPTIMISE} ${WARNINGS} -fno-strict-aliasing -ffp-contract=off)
  target_precompile_headers(simt PRIVATE "${PROJECT_SOURCE_DIR}/common/simt/internal.h")
  target_link_libraries(simt PUBLIC Threads::Threads ${CMAKE_DL_LIBS})

  # A load or store that the source writes is one that the instrumentation sees: nothing merged, nothing widened. Each basic
  # block calls trace-pc, for the count of FLOPs (common/simt/flops.cpp). That also wants jumps whose targets stand in the
  # code, calls that return, a square root that is one instruction (errno would be a second way through it), no arithmetic on
  # vectors, and none that is done in advance of a branch or moved into one that the compiler makes later.
  set(KERNEL_FLAGS ${KERNEL_OPTIMISE} ${WARNINGS} ${UNUSED_IS_NO_ERROR} -Wno-unknown-pragmas -fsanitize=thread -fno-strict-aliasing
      -ffp-contract=off -fno-jump-tables -fno-math-errno -fno-threadsafe-statics -fno-optimize-sibling-calls)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND KERNEL_FLAGS -fsanitize-coverage=bb,no-prune,trace-pc -fno-vectorize -fno-slp-vectorize)
    foreach(option tsan-instrument-read-before-write=1 disable-vector-combine phi-node-folding-threshold=0
            two-entry-phi-node-folding-threshold=0 speculate-one-expensive-inst=0 disable-cgp-select2branch)
      list(APPEND KERNEL_FLAGS -mllvm -${option})
    endforeach()
  else()
    # Loads stay where they are written, and each at one place: no sinking into branches, no copies for different threads.
    list(APPEND KERNEL_FLAGS -fno-tree-sink -fno-thread-jumps)
    # -Wno-psabi: no note that a tensor map as an argument is passed otherwise than by gcc 4.5.
    list(APPEND KERNEL_FLAGS -fsanitize-coverage=trace-pc -fno-tree-vectorize -fno-tree-slp-vectorize -Wno-psabi)
  endif()
  # clang's -fsanitize=thread leaves out many accesses to local arrays, as which wgmma has its registers. This finds them, at
  # twice the time, so that only programs for sm_90a get it (common/simt/hooks.cpp, local_access).
  set(WGMMA_KERNEL_FLAGS)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(WGMMA_KERNEL_FLAGS -fsanitize-coverage=trace-loads,trace-stores)
  endif()
  # A large local array touches every page on its way down the stack, and so the closed one at its end.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-fstack-clash-protection HAVE_STACK_CLASH_PROTECTION)
  if(HAVE_STACK_CLASH_PROTECTION)
    list(APPEND KERNEL_FLAGS -fstack-clash-protection)
  endif()
  # addr2line (binutils 2.40) sometimes takes the rewritten file's name from DWARF 5 in place of the .cu's.
  list(APPEND KERNEL_FLAGS -gdwarf-4)
  # __FILE__ in a lab is its path in the repository, wherever that lies.
  list(APPEND KERNEL_FLAGS "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
endif()

# --- nvcc -----------------------------------------------------------------------------------------------------------
if(BACKEND STREQUAL "gpu")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    # The toolkit's installer does not put nvcc on PATH.
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda
                 PATH_SUFFIXES bin DOC "nvcc")
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "The gpu backend needs nvcc, which is neither on PATH nor in /usr/local/cuda/bin. Install the "
                          "CUDA toolkit or set CUDACXX; the cpu backend (cmake --preset cpu) runs every lab without it.")
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # ours are explicit -gencode options, see cuda_architectures
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(NOT TARGET CUDA::cublas)
    message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER} came without cuBLAS, with which lab01 compares itself. Install the whole "
                        "CUDA toolkit (or its libcublas-dev package).")
  endif()

  # Which GPUs to compile for: those of this machine, else an A100 (and, through its PTX, newer ones) and an H100/H200.
  set(GPU_ARCHITECTURES "" CACHE STRING "GPU architectures to compile for, e.g. 80;90a (empty: this machine's, else 80;90a)")
  set(gpu_architectures ${GPU_ARCHITECTURES})
  if(NOT gpu_architectures)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE caps ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" caps "${caps}")
      string(REPLACE "." "" gpu_architectures "${caps}")
      list(TRANSFORM gpu_architectures REPLACE "^90$" "90a")  # wgmma and setmaxnreg exist in 90a only
      list(REMOVE_DUPLICATES gpu_architectures)
    endif()
  endif()
  if(NOT gpu_architectures)
    set(gpu_architectures 80 90a)
  endif()
  message(STATUS "GPU architectures: ${gpu_architectures}")

  # Warnings are errors, and so are register spills and (through nvcc_strict.sh) "wgmma serialised": both only cost
  # speed, so nobody would notice. warn-spills, not warn-lmem-usage: an indexed local array is a choice of the source, a
  # spill is an accident. (A lab with tasks still to be done may be slow: nvcc_strict.sh lets it.)
  set(NVCC_FLAGS -O3 -lineinfo -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers "SHELL:-Werror all-warnings" -Xptxas=-warn-spills)
  if(NOT STRICT)
    # nvcc cannot leave one of its warnings a warning, only silence it (177: never referenced, 550: never used). What g++ has
    # to say of the host's code remains.
    list(JOIN UNUSED_IS_NO_ERROR "," flags)
    list(APPEND NVCC_FLAGS "SHELL:-diag-suppress 177,550" "-Xcompiler=${flags}")
  endif()
  set(CMAKE_CUDA_COMPILER_LAUNCHER sh "${PROJECT_SOURCE_DIR}/cmake/nvcc_strict.sh")
  get_target_property(cudart CUDA::cudart IMPORTED_LOCATION)
  get_filename_component(CMAKE_BUILD_RPATH "${cudart}" DIRECTORY)  # the toolkit is often unknown to ldconfig
endif()

# Adds the -gencode options of a program: code for each architecture, and PTX of the plain ones for newer GPUs.
function(cuda_architectures name)
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES OFF)
  foreach(arch IN LISTS ARGN)
    target_compile_options(${name} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_${arch},code=sm_${arch}>")
    if(NOT arch MATCHES "[af]$")
      target_compile_options(${name} PRIVATE
        "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_${arch},code=compute_${arch}>")
    endif()
  endforeach()
endfunction()

# --- the functions that the rest of the build calls ---------------------------------------------------------------------
function(add_cuda_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ARCH")
  set(kernel_flags ${KERNEL_FLAGS})
  if("90a" IN_LIST arg_ARCH)
    list(APPEND kernel_flags ${WGMMA_KERNEL_FLAGS})
  endif()
  set(sources)
  foreach(source IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(path "${source}" ABSOLUTE)
    if(BACKEND STREQUAL "cpu" AND source MATCHES "\\.cu$")
      # Compiler messages, gdb and the reports of common/simt all speak of the .cu, because the rewriter puts one #line
      # on top and keeps every line in its place.
      get_filename_component(stem "${source}" NAME_WE)
      get_filename_component(folder "${path}" DIRECTORY)
      set(rewritten "${CMAKE_CURRENT_BINARY_DIR}/rewritten/${name}/${stem}.cpp")
      file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/rewritten/${name}")
      add_custom_command(OUTPUT "${rewritten}" COMMAND simt-rewrite "${path}" "${rewritten}"
                         DEPENDS "${path}" simt-rewrite COMMENT "Rewriting ${source}" VERBATIM)
      set_source_files_properties("${rewritten}" PROPERTIES COMPILE_OPTIONS "${kernel_flags}" INCLUDE_DIRECTORIES "${folder}")
      list(APPEND sources "${rewritten}")
    else()
      list(APPEND sources "${path}")
    endif()
  endforeach()

  add_executable(${name} ${sources})
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:C>:${LAB_C_FLAGS}>")
  if(BACKEND STREQUAL "cpu")
    target_link_libraries(${name} PRIVATE simt)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  else()
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${NVCC_FLAGS}>")
    target_link_libraries(${name} PRIVATE CUDA::cudart CUDA::cublas)
    if(arg_ARCH)
      cuda_architectures(${name} ${arg_ARCH})
    else()
      cuda_architectures(${name} ${gpu_architectures})
    endif()
  endif()
endfunction()

function(add_lab lab)
  add_cuda_executable(${lab} ${lab}/${lab}.cu ${ARGN})
  target_link_libraries(${lab} PRIVATE lab_common)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ARCH")
  set_target_properties(${lab} PROPERTIES LAB_ARCH "${arg_ARCH}")  # for its wrong kernels (tests/wrong)
  set_property(GLOBAL APPEND PROPERTY LABS ${lab})
endfunction()

# --- what the labs share on the host ------------------------------------------------------------------------------------
file(GLOB lab_common_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/common/*.c")
add_library(lab_common STATIC ${lab_common_sources})
target_compile_options(lab_common PRIVATE ${LAB_C_FLAGS})
target_link_libraries(lab_common PUBLIC m Threads::Threads)
if(BACKEND STREQUAL "cpu")
  target_link_libraries(lab_common PUBLIC simt)
else()
  target_link_libraries(lab_common PUBLIC CUDA::cudart)
endif()
