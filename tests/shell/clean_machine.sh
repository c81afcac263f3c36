#!/bin/sh
# clean_machine.sh [SUITE]   the README's two commands on a machine that has nothing: not part of ctest, run it by hand as
# root (needs debootstrap, 1 GB of disk, a few minutes and a Debian mirror: $MIRROR, or the one apt uses here).
#
# A minimal Debian SUITE (bookworm by default) is put into a temporary folder, the files of this working tree are copied
# in, and there, as root, with nothing else typed: ./lab run, then ./lab test. Exit 0 if both are.
set -u
suite=${1:-bookworm}
source_folder=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
mirror=${MIRROR:-$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    sed -n -e 's/^URIs: *\([^ ]*\/debian\/*\)$/\1/p' -e 's/^deb .*\(http[^ ]*\/debian\/*\) .*/\1/p' | head -n 1)}

fail() { echo "clean_machine.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail 'must be root, to make a chroot'
command -v debootstrap >/dev/null || fail 'needs debootstrap (apt-get install debootstrap)'
[ -n "$mirror" ] || fail "no Debian mirror in apt's sources; say MIRROR=http://..."

machine=$(mktemp -d) || exit 1
trap 'umount "$machine/proc" 2>/dev/null; rm -rf --one-file-system "$machine"' EXIT
trap 'exit 1' INT TERM

echo "== a minimal $suite in $machine"
debootstrap --variant=minbase "$suite" "$machine" "$mirror" >"$machine.log" 2>&1 || { tail "$machine.log"; fail 'debootstrap failed'; }
rm -f "$machine.log"
cp /etc/resolv.conf /etc/hosts "$machine/etc/"
mount -t proc proc "$machine/proc" || fail 'cannot mount /proc'
home=$machine/root/labs
mkdir "$home"
(cd "$source_folder" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf -) | tar -xf - -C "$home" ||
    fail 'cannot copy the working tree'

touch "$machine/started"
for tool in cmake make g++ cc nvcc; do
    chroot "$machine" sh -c "command -v $tool" && fail "$tool is there already"
done
status=0
for command in run test; do
    echo "== ./lab $command"
    started=$(date +%s)
    chroot "$machine" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /root/labs/lab $command
    code=$?
    echo "== ./lab $command: exit code $code after $(($(date +%s) - started)) s"
    [ $code -eq 0 ] || status=1
done
stray=$(cd "$home" && find . -newer "$machine/started" -type f ! -path './build/*' | head)
[ -z "$stray" ] || { echo "== written outside build/: $stray"; status=1; }
exit $status
