#!/bin/bash
# `hercules lint` of many tasks in one call, on a machine with a GPU, nvcc, and a python3 that has torch: every expert
# checked and timed, every honest candidate and mutant graded at its small sizes. It needs no network.
#
#   scripts/gpu/suite.sh [--members first] [--shard 1/4] [--no-candidates] [--again] [TASK|FAMILY...]
#
# A line a task goes to $OUT/suite.jsonl (default ./out) as soon as it is done; a later call with the same $OUT goes on from
# it. $EARLIER names such a file of an earlier call: what it has is not done again, except with --again. $BUDGET (default 540)
# is the seconds after which it stops between tasks (exit code 10), $LIMIT (default $BUDGET + 40) those after
# which it is stopped. At the end $OUT has suite.md (the table), suite.log (every task) and the panel file. Wheels of
# packages that python3 lacks may lie in $WHEELS (default .whl). What is compiled stays in $HERCULES_CACHE.
set -u
cd "$(dirname "$0")/../.." || exit 3
. scripts/gpu/site.sh
budget=${BUDGET:-540}
rows=$out/suite.jsonl
if [ -n "${EARLIER:-}" ] && [ ! -e "$rows" ]; then
  cp "$EARLIER" "$rows" || exit 3
fi
: >>"$rows"
# One thread a compile: a pool of workers for each of many processes would import PyTorch once more a process.
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-1}

timeout --signal=INT --kill-after=15 "${LIMIT:-$((budget + 40))}" \
  python3 -m cudahercules lint --device gpu --no-answers --resume "$rows" --budget "$budget" "$@" \
  >>"$out/suite.log" 2>"$out/suite.err"
code=$?
tail -c 2000 "$out/suite.err"
python3 -m cudahercules.judge.lint_table "$rows" --panels "$out" >"$out/suite.md" || exit 3
rm -f "$out"/*.lock
head -c 9000 "$out/suite.md"
[ $code != 124 ] || echo "stopped: call it again with the same \$OUT to go on"
exit $code
