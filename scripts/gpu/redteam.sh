#!/bin/bash
# All exploits and honest controls against the GPU judge, in one call of less than five minutes, on a machine with
# a GPU, nvcc, and a python3 that has torch. It needs no network.
#
#   scripts/gpu/redteam.sh [--only PATTERN]
#
# Results go to $OUT (default ./out): redteam.jsonl (a row a case; a later call with the same $OUT goes on from it)
# and redteam.md (the table), which is printed last. After $LIMIT seconds (default 280) it is stopped; the table then
# says how many cases were not reached. Exit code: 0 if every case was tried and is as it must be. Wheels of packages
# that python3 lacks may lie in $WHEELS (default .whl). What is compiled stays in $HERCULES_CACHE.
set -u
cd "$(dirname "$0")/../.." || exit 3
. scripts/gpu/site.sh
: >>"$out/redteam.jsonl"

timeout --signal=INT --kill-after=20 "${LIMIT:-280}" \
  python3 -m cudahercules redteam --device gpu --json --resume "$out/redteam.jsonl" "$@" >/dev/null
code=$?
python3 -m cudahercules.redteam.table --results "$out/redteam.jsonl" "$@" >"$out/redteam.md" || exit 3
cat "$out/redteam.md"
[ $code != 124 ] || echo "stopped after ${LIMIT:-280} s: call it again with the same \$OUT to go on"
exit $code
