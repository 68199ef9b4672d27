#!/usr/bin/env bash
# Runs the suite that scripts/gpu_suite.sh has packed: TORCH_DIR=.../site-packages/torch ./run_suite.sh [OPTION]...
# LibTorch is found there, and must be of the version that the programs were built with.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { printf 'run_suite: %s\n' "$*" >&2; exit 1; }

[[ ${1:-} == --help ]] && exec python3 "$here/run_suite.py" --help
[[ -n ${TORCH_DIR:-} ]] || die "TORCH_DIR is not set: name the folder of the torch package (.../site-packages/torch)"
[[ -f $TORCH_DIR/version.py ]] || die "TORCH_DIR is $TORCH_DIR, which has no version.py: it is not the torch package"
found=$(sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$TORCH_DIR/version.py")
wanted=$(<"$here/torch_version")
[[ $found == "$wanted" ]] || die "$TORCH_DIR is torch $found, and these programs need $wanted"

export LD_LIBRARY_PATH=$TORCH_DIR/lib:$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec python3 "$here/run_suite.py" "$@"
