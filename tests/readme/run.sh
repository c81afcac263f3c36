#!/bin/sh
# run.sh - the commands of every handout (extract.awk), run as they stand there; commands.txt has those that are not, and why.
#
#     run.sh SOURCE_FOLDER BUILD_FOLDER     on the cpu backend, in a tree of its own whose programs are those of BUILD_FOLDER
#     run.sh --gpu SOURCE_FOLDER            those that need a GPU, and ./lab run of each lab, in SOURCE_FOLDER (bench/readme_commands.sh)
#     run.sh --list SOURCE_FOLDER           all of them, each with what becomes of it
#
# On the cpu backend a program that is asked for the same twice, by itself and by ./lab, runs once. Exit 0, or 1 with each command
# that did not do what it says.
set -u
mode=cpu
case $1 in
    --gpu | --list) mode=${1#--}; shift ;;
esac
source_folder=$1 build=${2:-}
here=$source_folder/tests/readme
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0 ran=0 looked_at=0
tab=$(printf '\t')
export LC_ALL=C

complain() {
    printf '%s: %s\n    %s\n' "$where" "$1" "$command"
    [ ! -s "$dir/said" ] || sed 's/^/    | /' "$dir/said" | tail -n 12
    failures=$((failures + 1))
}

# ---- what becomes of a command -----------------------------------------------------------------------------------------
# find_entries: for each line "WHERE<tab>COMMAND" the number of the first entry of commands.txt that matches the command, and its
# kind; 0 and run where none does. Then the same line.
find_entries() {
    awk -F "$tab" -v table="$dir/table" '
        BEGIN {
            while ((getline line <table) > 0) {
                split(line, part, / +[|] +/)
                kind[++entries] = part[1]
                pattern[entries] = "^(" part[2] ")$"
            }
        }
        {
            for (e = 1; e <= entries && $2 !~ pattern[e]; e++) continue
            print (e > entries ? "0" FS "run" : e FS kind[e]) FS $0
        }'
}

# what_of ENTRY COMMAND: the third part of that line of the table, with what the command has for \1 and \2.
what_of() {
    [ "$1" -ne 0 ] || return 0
    sed -n "$1s/ \{1,\}| \{1,\}/\n/gp" "$dir/table" | {
        read -r _
        read -r pattern
        read -r replacement
        printf '%s\n' "$2" | sed -E "s#^$pattern\$#$replacement#"
    }
}

# ---- the tree ----------------------------------------------------------------------------------------------------------
# A program that notes what it said and how it ended, and says it again when it is asked for the same.
wrap() { # PROGRAM WRAPPER
    cat >"$2" <<END
#!/bin/sh
json='' key=''
for word; do
    if [ "\$json" = next ]; then json=\$word; continue; fi
    if [ "\$word" = --json ]; then json=next; continue; fi
    key="\$key \$word"
done
key=$dir/memory/\$(printf '%s' "${1##*/} \${LAB_SHARED_BYTES:-} \$key \$PWD" | cksum | tr ' ' -)
case "\$key \$* " in *' --save '* | *' --trace '* | *' --load '*) key=\$key-\$\$ ;; esac
if [ ! -e "\$key.rc" ]; then
    left=\$#
    while [ \$left -gt 0 ]; do
        if [ "\$1" = --json ]; then shift 2; left=\$((left - 2)); continue; fi
        set -- "\$@" "\$1"
        shift
        left=\$((left - 1))
    done
    case " \$*" in
        *' --train'* | *' --generate'*) ;;  # they write none
        *) set -- "\$@" --json "\$key.json" ;;
    esac
    "$1" "\$@" >"\$key.out" 2>"\$key.err"
    echo \$? >"\$key.rc"
fi
[ -z "\$json" ] || [ ! -e "\$key.json" ] || cp "\$key.json" "\$json"
cat "\$key.err" >&2
cat "\$key.out"
exit \$(cat "\$key.rc")
END
    chmod +x "$2"
}

make_tree() {
    tree=$dir/tree
    mkdir -p "$dir/memory" "$tree/build/cpu/diff" "$tree/build/cpu/report" "$tree/build/cpu/grade" "$dir/bin"
    for name in "$source_folder"/* "$source_folder"/.[a-z]*; do
        case ${name##*/} in
            build | build-* | lab | bench | .git | . | ..) ;;
            *) ln -s "$name" "$tree/${name##*/}" ;;
        esac
    done
    cp -R "$source_folder/lab" "$source_folder/bench" "$tree"
    sed -n 's/^add_lab(\([a-z0-9_]*\).*/\1/p' "$source_folder/CMakeLists.txt" >"$dir/labs"
    while read -r lab; do wrap "$build/$lab" "$tree/build/cpu/$lab"; done <"$dir/labs"
    for name in diff/lab_diff report/lab_report grade/lab_markers; do
        [ ! -e "$build/$name" ] || ln -s "$build/$name" "$tree/build/cpu/$name"
    done
    ln -s cpu "$tree/build/debug"
    # All is built: cmake has nothing to do.
    cmake=$(command -v cmake)
    cat >"$dir/bin/cmake" <<END
#!/bin/sh
[ "\$1" != --version ] || exec "$cmake" --version
END
    printf '#!/bin/sh\nexit 1\n' >"$dir/bin/nvidia-smi"  # and there is no GPU, for commands that do not say which backend
    chmod +x "$dir/bin/cmake" "$dir/bin/nvidia-smi"
    PATH=$dir/bin:$PATH
    cd "$tree" || exit 1
}

# ---- running and looking at --------------------------------------------------------------------------------------------
# run COMMAND: in a shell, as a reader would. Its exit code is $status.
run() {
    timeout 60 sh -c "$1" >"$dir/said" 2>&1 </dev/null
    status=$?
}

expect_success() {
    run "$1"
    ran=$((ran + 1))
    [ $status -eq 0 ] || complain "exit code $status"
}

# takes_options COMMAND: whether it is a command that is, and takes these options, without running it.
takes_options() {
    looked_at=$((looked_at + 1))
    case $1 in
        *build/cpu/lab*) run "$1 --list" ;;
        ./lab\ run*' -- '*) run "$(printf '%s' "$1" | sed 's/ --backend gpu/ --backend cpu/') --list" ;;
        ./lab\ run*) run "$(printf '%s' "$1" | sed 's/ --backend gpu/ --backend cpu/') -- --list" ;;
        ./lab\ test*) run './lab help' && named_in "$dir/said" "$1" ;;
        ./lab\ grade*) run './lab grade --help' && named_in "$dir/said" "$1" ;;
        python3\ *) file=${1#python3 } file=${file%% *}; : >"$dir/said"; status=0; named_in "$file" "$1" ;;
        gdb\ *) options_of_gdb "$1" ;;
        *) : >"$dir/said"; status=1 ;;
    esac
    [ $status -eq 0 ] || complain "it is not taken"
}

# named_in FILE COMMAND: whether each option of the command is named in the file.
named_in() {
    [ -s "$1" ] || { status=1; return; }
    for word in $2; do
        case $word in
            --*) grep -qF -e "$word" "$1" || status=1 ;;
        esac
    done
}

# gdb -x SCRIPT --args build/debug/LAB OPTIONS
options_of_gdb() {
    script=${1#gdb -x } script=${script%% *}
    program=${1#*--args }
    run "[ -s $script ] && $(printf '%s' "$program" | sed 's,^build/debug/,build/cpu/,') --list"
}

# runs_elsewhere NAME: whether there is a test of that name, or a step of .ci/run.
runs_elsewhere() {
    case $1 in
        'this test') return ;;
        '.ci/run '*) [ ! -e "$source_folder/.ci/run" ] || grep -q "^step_${1#.ci/run }()" "$source_folder/.ci/run" && return ;;
        *) grep -q ": $1\$" "$dir/tests" && return ;;
    esac
    complain "commands.txt says that $1 runs it, which is not there"
}

on_cpu() {
    case $kind in
        run) expect_success "$command" ;;
        small) takes_options "$command"; expect_success "$what" ;;
        first) expect_success "$what"; expect_success "$command" ;;
        elsewhere) runs_elsewhere "$what"; takes_options "$command" ;;
        gpu) takes_options "$command" ;;
        refuse)
            run "$command"
            ran=$((ran + 1))
            if [ $status -ne 2 ] || ! grep -Eq -e "$what" "$dir/said"; then complain "it is not refused with: $what"; fi ;;
        *) complain "commands.txt has no kind '$kind'" ;;
    esac
}

on_gpu() {
    case $kind,$command in
        gpu,*bench/results/NAME.csv*)
            python3 -c 'import torch' 2>/dev/null || { echo "no PyTorch here, so not run: $command"; return; }
            command=$(printf '%s' "$command" | sed "s,bench/results/NAME.csv,$dir/NAME.csv,") ;;
        gpu,* | run,./lab\ run*) ;;
        *) return ;;
    esac
    echo "== $command"
    timeout 3000 sh -c "$command" </dev/null
    status=$?
    ran=$((ran + 1))
    [ $status -eq 0 ] || complain "exit code $status"
}

# ---- all of them -------------------------------------------------------------------------------------------------------
cd "$source_folder" || exit 1
source_folder=$(pwd -P)
here=$source_folder/tests/readme
sed '/^#/d; /^$/d' "$here/commands.txt" >"$dir/table"
set -- README*.md */README*.md tests/*/README*.md
for page; do [ -e "$page" ] && printf '%s\0' "$page"; done | xargs -0 awk -f "$here/extract.awk" | awk -F "$tab" '!seen[$2]++' |
    find_entries >"$dir/commands"
for page in lab*/README*.md; do
    [ "$(awk -f "$here/extract.awk" "$page" | wc -l)" -ge 3 ] || { echo "$page has fewer than three commands"; failures=$((failures + 1)); }
done
if [ "$mode" = cpu ]; then
    build=$(cd "$build" && pwd -P) || exit 1
    ctest --test-dir "$build" -N >"$dir/tests" || exit 1
    make_tree
fi
while IFS=$tab read -r entry kind where command <&3; do
    what=$(what_of "$entry" "$command")
    case $mode in
        cpu) on_cpu ;;
        gpu) on_gpu ;;
        list) printf '%-10s %s\n' "$kind" "$command" ;;
    esac
done 3<"$dir/commands"
awk -F "$tab" 'FNR == NR { used[$1] = 1; next } !used[FNR] { print "commands.txt: no handout has a command for this entry: " $0; ++unused } END { exit unused > 0 }' \
    "$dir/commands" "$dir/table" || failures=$((failures + 1))
[ "$mode" = list ] || echo "$ran commands run, of $looked_at the options looked at; $failures failures"
[ $failures -eq 0 ]
