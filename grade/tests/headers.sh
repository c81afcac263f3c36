#!/bin/sh
# headers.sh SOURCE_FOLDER - every header of common/ that a lab includes is one that a submission may include, too.
set -u
cd "$1" || exit 1
status=0
# shellcheck disable=SC2013  # words: no name has a space
for name in $(sed -n 's/^#include "\(common\/[^"]*\)".*/\1/p' lab[0-9]*/*.cu | sort -u); do
    grep -qF "\"$name\"" grade/scan.c || { echo "labs include $name, which grade/scan.c does not allow submissions"; status=1; }
done
[ -n "${name:-}" ] || { echo "no lab includes anything of common/"; status=1; }
exit $status
