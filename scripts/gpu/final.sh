#!/bin/bash
# All evidence about the GPU judge in one call, on a machine with a GPU, nvcc, and a python3 that has torch.
# It needs no network.
#
#   scripts/gpu/final.sh --rehearsal          a handful of trials of everything, about a minute
#   scripts/gpu/final.sh [--budget aa=160]    the whole: benchmarks/gpu/evidence.py with its budgets
#
# Results go to $OUT (default ./out): eight files, no folders; the tables are printed last. Wheels of
# packages that python3 lacks may lie in $WHEELS (default .whl). What is compiled stays in $HERCULES_CACHE.
set -u
cd "$(dirname "$0")/../.." || exit 3
out=${OUT:-out}
wheels=${WHEELS:-.whl}
site=${TMPDIR:-/tmp}/hercules-site
export HERCULES_CACHE=${HERCULES_CACHE:-${TMPDIR:-/tmp}/hercules-cache}
mkdir -p "$out"

if ls "$wheels"/*.whl >/dev/null 2>&1 && [ ! -e "$site/.complete" ]; then
  python3 -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
    --upgrade --target "$site" "$wheels"/*.whl && touch "$site/.complete" || exit 3
fi
export PYTHONPATH="$PWD/src:$site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
exec python3 benchmarks/gpu/evidence.py --out "$out" "$@"
