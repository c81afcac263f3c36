#!/bin/sh
# gpu_case.sh - runs a command and passes its exit code on; but a refusal (exit 2) for want of device memory is a skip (77).
#
#     gpu_case.sh COMMAND [ARGUMENT...]
set -u
said=$("$@" 2>&1)
code=$?
printf '%s\n' "$said"
if [ "$code" -eq 2 ] && printf '%s\n' "$said" | grep -q 'device memory are free'; then exit 77; fi
exit "$code"
