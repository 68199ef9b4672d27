#!/usr/bin/env bash
# Packs tests and benchmarks for a machine with a GPU: scripts/gpu_suite.sh [BUILD_FOLDER] [ARCHIVE.tar.gz]
# There: tar -xzf ARCHIVE && TORCH_DIR=.../site-packages/torch sluice_gpu_suite/run_suite.sh (--help says more).
# Takes the programs of a release build (build/release), stripped, and the shared libraries they need but for LibTorch's
# and the C library's: those are the other machine's.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
archive=${2:-$build/sluice_gpu_suite.tar.gz}
programs=(sluice toy_train)
most_bytes=$((60 << 20))

die() { printf 'gpu_suite: %s\n' "$*" >&2; exit 1; }

# Path of every shared library that a program loads and the archive brings.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u |
    grep -Ev "^$packages/|/lib(c|m|dl|rt|util|pthread)\.so"
}

mapfile -t tests < <(python3 "$root/scripts/run_suite.py" --list-tests)
programs+=("${tests[@]}")
for program in "${programs[@]}"; do
  [[ -x $build/$program ]] || die "$build/$program is not built: cmake --build --preset release"
done
torch_lib=$(ldd "$build/sluice" | awk '/libtorch_cpu.so/ {print $3}' | xargs -r dirname)
[[ -n $torch_lib ]] || die "$build/sluice does not find its LibTorch"
packages=$(cd "$torch_lib/../.." && pwd)  # LibTorch's own libraries lie beside it

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
suite=$folder/sluice_gpu_suite
mkdir -p "$suite"/{bin,lib,text,configs}
for program in "${programs[@]}"; do strip -o "$suite/bin/$program" "$build/$program"; done
module=$build/libsluice_torch_cuda.so  # is looked for beside the program
if [[ -f $module ]]; then
  strip -o "$suite/bin/${module##*/}" "$module"
else
  printf 'gpu_suite: %s is not built (no nvcc?): the suite will compute on the CPU alone\n' "${module##*/}" >&2
fi
mapfile -t libraries < <(libraries_of "${programs[@]/#/$build/}")
cp -L "${libraries[@]}" "$suite/lib/"
cp "$root"/{README,ARCHITECTURE,CONTRIBUTING}.md "$root"/docs/*.md "$suite/text/"
cp "$root/configs/demo.json" "$suite/configs/"
cp "$root"/scripts/run_suite.{sh,py} "$suite/"
sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$torch_lib/../version.py" >"$suite/torch_version"
git -C "$root" describe --always --abbrev=40 --dirty >"$suite/commit" 2>/dev/null || echo unknown >"$suite/commit"

tar -C "$folder" -czf "$archive" sluice_gpu_suite
bytes=$(stat -c %s "$archive")
((bytes < most_bytes)) || die "$archive has $bytes bytes, more than $most_bytes"
printf '%s: %d programs, %d libraries, %d bytes\n' "$archive" "${#programs[@]}" "${#libraries[@]}" "$bytes"
