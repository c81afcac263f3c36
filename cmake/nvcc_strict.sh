#!/bin/sh
# nvcc_strict.sh nvcc ARGUMENTS...   runs nvcc and fails when ptxas says that it serialised wgmma.
#
# ptxas reports "wgmma.mma_async instructions are serialized" and the waits that it injects (C7508 to C7519) as
# information, which no option turns into an error. The kernel stays right and loses much of its speed unnoticed.
#
# A lab in which tasks are still to be done (./lab starter) may be slow, and may spill registers.
undone='' before=''
for argument; do
    [ "$before" != -c ] || ! grep -q '// END TODO' "$argument" 2>/dev/null || undone=yes
    before=$argument
done
if [ -n "$undone" ]; then
    for argument; do
        shift
        [ "$argument" = -Xptxas=-warn-spills ] || set -- "$@" "$argument"
    done
fi
messages=$("$@" 2>&1)
status=$?
[ -z "$messages" ] || printf '%s\n' "$messages" >&2
if [ $status -eq 0 ] && [ -z "$undone" ] && printf '%s\n' "$messages" | grep -q '(C75\(0[89]\|1[0-9]\))'; then
    echo "error: ptxas serialised wgmma (C75xx above); the build stops because only a profiler would show the loss" >&2
    status=1
    while [ $# -gt 1 ]; do  # make must not take the object file for finished
        [ "$1" != -o ] || rm -f -- "$2"
        shift
    done
fi
exit $status
