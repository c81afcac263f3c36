# simt.gdb - makes gdb's `step` pass over the simulated device: the checks behind every load and store, the scheduler, and
# the stand-ins for CUDA's headers. What is left to step into is the lab's own code. From the root of the repository:
#
#     gdb -x common/simt/simt.gdb --args build/debug/lab01_naive --seqlen 64 --kernel naive
#
# `skip delete` undoes it, to watch the device at work.
skip -gfile common/simt/*.cpp
skip -gfile common/simt/*.h
skip -gfile common/simt/include/*
