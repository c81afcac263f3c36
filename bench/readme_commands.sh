#!/bin/sh
# readme_commands.sh - the commands of the handouts that need a GPU, and ./lab run of each lab, run as they stand there. On a machine
# with nvcc and a GPU; those of bench/*.py need PyTorch besides, and say so where it is not. The others run in ./lab test
# (tests/readme). Exit 0, or 1 with each that failed.
folder=$(cd "$(dirname "$0")/.." && pwd -P) || exit 1
[ -x "$folder/tests/readme/run.sh" ] || { echo "readme_commands.sh: this tree has no tests/readme, which a starter leaves out" >&2; exit 2; }
nvidia-smi -L >/dev/null 2>&1 || { echo "readme_commands.sh needs a GPU, and nvidia-smi -L finds none; ./lab test runs the other commands" >&2; exit 2; }
exec "$folder/tests/readme/run.sh" --gpu "$folder"
