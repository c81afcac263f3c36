#!/bin/sh
# self_test.sh EXPECT.SH - run.sh on handouts of stand-ins: what it finds, what it runs, and what it complains of.
set -u
expect=$1
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/cli/cli.sh
. "$here/../cli/cli.sh"
dir=$(cd "$dir" && pwd -P)
house=$dir/house build=$dir/out calls=$dir/calls
mkdir -p "$house/tests/readme" "$house/lab01_one" "$house/bench" "$build"
cp "$here/extract.awk" "$house/tests/readme"
echo 'add_lab(lab01_one)' >"$house/CMakeLists.txt"
echo 'add_test(unit.one "true")' >"$build/CTestTestfile.cmake"
echo '# --known' >"$house/bench/tool.py"
cat >"$build/lab01_one" <<END
#!/bin/sh
echo "lab01_one \$*" >>"$calls"
for word; do
    case \$word in
        --bad) echo 'There is no option --bad.' >&2; exit 2 ;;
        --wrong) exit 1 ;;
        --refused) echo 'no room here' >&2; exit 2 ;;
    esac
done
END
cat >"$house/lab" <<END
#!/bin/sh
echo "./lab \$*" >>"$calls"
[ "\$*" != 'run 01' ] || exec build/cpu/lab01_one --json x.json
END
chmod +x "$build/lab01_one" "$house/lab"
run() { # CODE SAYS
    : >"$calls"
    try "$1" "$2" - "$here/run.sh" "$house" "$build"
}
called() { [ "$(grep -cFx -e "$2" "$calls")" -eq "$1" ] || fail "not $1 times: $2; these were: $(cat "$calls")"; }
cat >"$house/tests/readme/commands.txt" <<'END'
# comment
small | (build/cpu/lab01_one) --long | \1 --short | takes long
refuse | build/cpu/lab01_one --refused | no ro+m | that is the point
elsewhere | build/cpu/lab01_one --same | unit.one | it is that
gpu | python3 bench/tool.py .* | - | needs a GPU
first | build/cpu/lab01_one --load mine | build/cpu/lab01_one --save mine | the reader's own
END
cat >"$house/README.md" <<'END'
    ./lab run 01                          # a comment
    build/cpu/lab01_one --load mine
    not a command
```sh
build/cpu/lab01_one   # the same as ./lab run 01

build/cpu/lab01_one --long
# only a comment
build/cpu/lab01_one --one \
    --two
build/cpu/lab01_one --one && build/cpu/lab01_one --three
```
```
$ build/cpu/lab01_one --refused
no room here
./lab nothing: what a command says
```
END
printf '    build/cpu/lab01_one --same\n    python3 bench/tool.py --known 1\n    build/cpu/lab01_one --one --two\n' >"$house/lab01_one/README.md"
run 0 '8 commands run, of 3 the options looked at; 0 failures'
called 1 './lab run 01'
[ "$(grep -c '^lab01_one --json ' "$calls")" -eq 1 ] || fail "what ./lab run 01 and a command have in common was not run once: $(cat "$calls")"
for options in '--one --two' --one --three --short '--long --list' '--same --list' --refused '--save mine' '--load mine'; do
    [ "$(grep -c -e "^lab01_one $options --json " "$calls")" -eq 1 ] || fail "$options was not run once: $(cat "$calls")"
done
grep -q -e '--long --json' -e '--same --json' "$calls" && fail "a command was run that should not be: $(cat "$calls")"
grep -q nothing "$calls" && fail "what a command says was run"

# Each of these is found.
cp "$house/README.md" "$dir/good.md"
add() { { cat "$dir/good.md"; printf '\n%s\n' "$1"; } >"$house/README.md"; }
add '    build/cpu/lab01_one --wrong'
run 1 '^README.md:19: exit code 1'
add '    python3 bench/tool.py --unknown'
run 1 '^README.md:19: it is not taken'
add '    python3 bench/missing.py --known'
run 1 '^README.md:19: exit code 2'
add '    ./lab02_nothing --x'
run 1 '^README.md:19: exit code 127'
cp "$dir/good.md" "$house/README.md"
cp "$house/tests/readme/commands.txt" "$dir/good.txt"
entry() { { cat "$dir/good.txt"; echo "$1"; } >"$house/tests/readme/commands.txt"; }
entry 'small | build/cpu/lab01_one --gone | - | -'
run 1 'no handout has a command for this entry: small .* --gone'
sed 's/unit.one/unit.two/' "$dir/good.txt" >"$house/tests/readme/commands.txt"
run 1 'says that unit.two runs it, which is not there'
sed 's/no ro+m/enough/' "$dir/good.txt" >"$house/tests/readme/commands.txt"
run 1 'it is not refused with: enough'
sed 's/^small/large/' "$dir/good.txt" >"$house/tests/readme/commands.txt"
run 1 "no kind 'large'"
cp "$dir/good.txt" "$house/tests/readme/commands.txt"
sed 's/--long/--bad/' "$dir/good.md" >"$house/README.md"
sed 's/--long/--bad/' "$dir/good.txt" >"$house/tests/readme/commands.txt"
run 1 'it is not taken'
cp "$dir/good.txt" "$house/tests/readme/commands.txt"
cp "$dir/good.md" "$house/README.md"
printf '    build/cpu/lab01_one --same\n    python3 bench/tool.py --known 1\n' >"$house/lab01_one/README.md"
run 1 'lab01_one/README.md has fewer than three commands'

# On a GPU: ./lab run and what needs one, as they are, in the folder itself.
printf '    ./lab run 01\n    build/cpu/lab01_one --same\n    ./lab run 01 --backend gpu -- --bench\n' >"$house/lab01_one/README.md"
printf 'small | build/cpu/lab01_one --same | - | -\ngpu | [.]/lab run .*--backend gpu.* | - | needs a GPU\n' >"$house/tests/readme/commands.txt"
rm "$house/README.md"
mkdir -p "$house/build/cpu"
cp "$build/lab01_one" "$house/build/cpu"
: >"$calls"
try 0 '2 commands run' - "$here/run.sh" --gpu "$house"
called 1 './lab run 01 --backend gpu -- --bench'
called 1 './lab run 01'
grep -q -e '--same' "$calls" && fail "what the cpu backend's test runs was run on the GPU"
finish
