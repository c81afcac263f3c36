#!/bin/sh
# markers.sh - what lab_markers makes of a small file, and what it refuses.
#
#     markers.sh LAB_MARKERS EXPECT.SH
set -u
markers=$1 expect=$2
# shellcheck source=tests/cli/cli.sh
. "$(dirname "$0")/../cli/cli.sh"
cd "$dir" || exit 1
# is FILE: its text is what stands on standard input.
is() { diff - "$1" || fail "$1 is not what it should be (< is)"; }

# ---- there and back, with an indented task, one that needs no stub, and a last line without an end
printf '%s\n' 'int f(int x) {' '    // BEGIN SOLUTION twice: twice as much.' '    int y = 2 * x;' '' '    // STUB int y = 0;' \
    '    // STUB (void)x;' '    // END SOLUTION' '    return y;' '}' '// BEGIN SOLUTION rest: the other function.' \
    'int g() { return 3; }' >lab.cu
printf '// END SOLUTION' >>lab.cu
try 0 - - "$markers" starter lab.cu starter.cu
{ cat starter.cu && echo; } >with_end.cu  # its last line has none
is with_end.cu <<'END'
int f(int x) {
    // TODO twice: twice as much.
    int y = 0;
    (void)x;
    // END TODO
    return y;
}
// TODO rest: the other function.
// END TODO
END
[ "$(tail -c 5 starter.cu)" = ' TODO' ] || fail "the starter's last line has an end that the lab's has not"
try 0 - - "$markers" solutions lab.cu solutions.txt
try 0 - - "$markers" insert starter.cu solutions.txt solved.cu
cmp lab.cu solved.cu || fail "starter + solutions is not the lab"
try 0 - - "$markers" starter --only rest lab.cu rest.cu
[ "$(sed -n 7p rest.cu)" = '    // END SOLUTION' ] || fail "--only rest touched another task"
grep -q 'return 3' rest.cu && fail "--only rest left the solution of it"
try 0 - - "$markers" starter --only rest --only twice lab.cu both.cu
cmp starter.cu both.cu || fail "both tasks are not all tasks"
try 0 - - "$markers" insert rest.cu solutions.txt solved.cu
cmp lab.cu solved.cu || fail "one task + solutions is not the lab"
try 0 '^twice  lines 2-7  twice as much[.]$' - "$markers" list lab.cu
try 0 '^rest  lines 8-9  the other function[.]$' - "$markers" list starter.cu

# One solution alone; what a student wrote there is gone, and the other task stays to be done.
sed -n '/SOLUTION twice/,/END/p' lab.cu >twice.txt
sed 's/    int y = 0;/    int y = x + x;\n    y++;/' starter.cu >student.cu
try 0 - - "$markers" insert student.cu twice.txt solved.cu
[ "$(sed -n 2,9p solved.cu)" = "$(sed -n 2,9p lab.cu)" ] || fail "the solution of one task is not in its place"
grep -q '^// TODO rest' solved.cu || fail "a task without a solution did not stay"

# Lines that end as on Windows stay as they are.
sed 's/$/\r/' lab.cu >windows.cu
try 0 - - "$markers" starter windows.cu windows_starter.cu
sed 's/$/\r/' starter.cu | cmp - windows_starter.cu || fail "carriage returns got lost"
try 0 - - "$markers" solutions windows.cu windows.txt
try 0 - - "$markers" insert windows_starter.cu windows.txt solved.cu
cmp windows.cu solved.cu || fail "starter + solutions is not the lab, with carriage returns"

# ---- what is refused, each with a sentence that names the line, and no file
refuse() {
    says=$1
    cat >bad.cu
    rm -f out
    try 2 - "$says" "$markers" starter bad.cu out
    [ ! -e out ] || fail "a file was written after: $says"
}
refuse '^lab_markers: bad.cu has no task' <<'END'
int f() { return 1; }
END
refuse 'bad.cu:2: task a, which begins in line 1, has not ended: tasks cannot be nested' <<'END'
// BEGIN SOLUTION a: one
// BEGIN SOLUTION b: two
x
// END SOLUTION
// END SOLUTION
END
refuse 'bad.cu:2: task a never ends' <<'END'
int y;
// BEGIN SOLUTION a: one
x
END
refuse 'bad.cu:1: this ends a task that never began' <<'END'
// END SOLUTION
END
refuse 'bad.cu:4: there is a task a already, in line 1' <<'END'
// BEGIN SOLUTION a: one
x
// END SOLUTION
// BEGIN SOLUTION a: two
y
// END SOLUTION
END
refuse 'bad.cu:3: task a, which begins in line 1, has no solution in it' <<'END'
// BEGIN SOLUTION a: one
// STUB x
// END SOLUTION
END
refuse 'bad.cu:1: this marker needs a name in small letters and a hint' <<'END'
// BEGIN SOLUTION
x
// END SOLUTION
END
refuse 'bad.cu:1: this marker needs a name in small letters' <<'END'
// BEGIN SOLUTION The Sum: one
x
// END SOLUTION
END
refuse 'bad.cu:1: task a needs a hint' <<'END'
// BEGIN SOLUTION a:
x
// END SOLUTION
END
refuse 'bad.cu:3: task a, which begins in line 1, must end with a line // END SOLUTION' <<'END'
// BEGIN SOLUTION a: one
x
// END TODO
END
refuse 'bad.cu:3: task a, which begins in line 1, must end' <<'END'
// BEGIN SOLUTION a: one
x
// END SOLUTION of it
END
refuse 'bad.cu:1: task a is still to do: this is a starter' <<'END'
// TODO a: one
// END TODO
END
# A misprint would hand out the solution.
for misprint in '//BEGIN SOLUTION b: two' '// Begin Solution b: two' '/* BEGIN SOLUTION b: two */' 'x; // END SOLUTION' \
    '//STUB x' '// STUB'; do
    printf '%s\n' '// BEGIN SOLUTION a: one' 'x' '// END SOLUTION' "$misprint" | refuse 'bad.cu:4: this is nearly a marker'
done
i=0
while [ $i -lt 17 ]; do
    printf '%s\n' "// BEGIN SOLUTION a$i: one" x '// END SOLUTION'
    i=$((i + 1))
done | refuse 'bad.cu:49: a file has 16 tasks at most'
printf '// BEGIN SOLUTION a: one\n\000\n// END SOLUTION\n' | refuse 'bad.cu has a byte 0 in it'

try 2 - 'cannot read gone.cu' "$markers" starter gone.cu out
try 2 - 'lab.cu has no task twic[.] Did you mean twice[?]' "$markers" starter --only twic lab.cu out
sed 's/twice:/thrice:/' solutions.txt >other.txt
try 2 - 'other.txt solves thrice, which is no task of starter.cu[.] Did you mean twice' "$markers" insert starter.cu other.txt out
try 2 - 'starter.cu:2: task twice is still to do' "$markers" solutions starter.cu out
try 2 - 'starter.cu:2: task twice is still to do' "$markers" insert starter.cu starter.cu out
try 2 - 'cannot write no/folder' "$markers" starter lab.cu no/folder
[ ! -c /dev/full ] || try 2 - 'cannot write all of /dev/full' "$markers" starter lab.cu /dev/full
for wrong in '' 'starter lab.cu' 'starter --only lab.cu out' 'list' 'insert starter.cu out' 'frobnicate lab.cu'; do
    # shellcheck disable=SC2086  # words
    try 2 - '^lab_markers: usage: ' "$markers" $wrong
done
[ ! -e out ] || fail "a file was written after a refusal"
finish
