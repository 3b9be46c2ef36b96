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
. scripts/gpu/site.sh
exec python3 benchmarks/gpu/evidence.py --out "$out" "$@"
