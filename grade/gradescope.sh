#!/bin/sh
# gradescope.sh - ./lab gradescope FILE.zip [--hidden FOLDER] [--lab NN ...]: makes the autograder for Gradescope.
#
#     gradescope.sh ROOT FILE.zip [OPTION...]
#
# The zip has setup.sh and run_autograder, as Gradescope asks for, and the tree without its builds and its history. There,
# results go to /autograder/results/results.json, and the submission is in /autograder/submission.
set -u
root=$1
shift
usage() { echo "lab gradescope: $*" >&2; exit 2; }

file='' hidden='' labs=''
while [ $# -gt 0 ]; do
    case $1 in
        --hidden | --lab)
            [ $# -ge 2 ] || usage "$1 needs a value"
            case $1/$2 in
                --hidden/*) hidden=$2 ;;
                --lab/*[!a-z0-9_]*) usage "'$2' is no lab: give its number, like 02" ;;
                *) labs="$labs --lab $2" ;;
            esac
            shift ;;
        -*) usage "there is no option $1; it takes FILE.zip, --hidden FOLDER and --lab NN" ;;
        *) [ -z "$file" ] || usage "there are two files, $file and $1; give one"; file=$1 ;;
    esac
    shift
done
case $file in
    *.zip) ;;
    '') usage "say which file to write: ./lab gradescope autograder.zip" ;;
    *) usage "$file does not end in .zip" ;;
esac
[ -z "$hidden" ] || [ -f "$hidden/points.csv" ] || usage "$hidden has no points.csv; grade/hidden_sample is a folder that has"
case $file in /*) ;; *) file=$PWD/$file ;; esac
command -v zip >/dev/null 2>&1 || command -v cmake >/dev/null 2>&1 || usage "it needs zip or cmake to pack the file; install one of them"

top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
mkdir "$top/zip" "$top/zip/labs"
(cd "$root" && tar -cf - --exclude=./.git --exclude=./build --exclude='./build-*' .) | (cd "$top/zip/labs" && tar -xf -) || exit 1
[ -z "$hidden" ] || cp -R "$hidden" "$top/zip/hidden" || exit 1
cat >"$top/zip/setup.sh" <<'END'
#!/bin/sh
# Once, when the image is made: the compiler, and everything that submissions share.
set -e
apt-get update
apt-get install -y --no-install-recommends cmake g++ make
cd /autograder/source/labs
cmake --preset cpu
cmake --build --preset cpu --parallel 2 --target grade
chmod -R go+rX /autograder/source/labs
[ ! -d /autograder/source/hidden ] || chmod -R go-rwx /autograder/source/hidden
END
cat >"$top/zip/run_autograder" <<END
#!/bin/sh
# For each submission.
results=/autograder/results/results.json
set -- --backend cpu --out /tmp/grade --gradescope "\$results"$labs
[ ! -d /autograder/source/hidden ] || set -- "\$@" --hidden /autograder/source/hidden
/autograder/source/labs/lab grade /autograder/submission "\$@"
[ -s "\$results" ] || printf '%s\n' '{"score": 0, "output": "The autograder failed. Please tell your instructor."}' >"\$results"
END
chmod 755 "$top/zip/setup.sh" "$top/zip/run_autograder"
rm -f "$file"
cd "$top/zip" || exit 1
if command -v zip >/dev/null 2>&1; then
    zip -q -r -X "$file" setup.sh run_autograder labs hidden -x '*.o' 2>"$top/log" || [ -s "$file" ]
else
    cmake -E tar cf "$file" --format=zip -- * >"$top/log" 2>&1
fi || { cat "$top/log" >&2; echo "lab gradescope: $file cannot be written" >&2; exit 1; }
echo "$file: upload it as the autograder of a programming assignment"
