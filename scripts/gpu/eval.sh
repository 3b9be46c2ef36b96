#!/bin/bash
# `hercules eval replay/demo` over all families in all settings, on a machine with a GPU, nvcc, g++, and a python3 that has
# torch. It needs no network.
#
#   scripts/gpu/eval.sh                       all settings in turn
#   scripts/gpu/eval.sh oneshot refine        these only (oneshot, refine, agent, coder_and_judge, tools)
#
# `tools` runs Nsight Compute and compute-sanitizer around the replayer once and prints what the agent's tools make of it.
# Logs and tables go to $OUT (default ./out). Wheels that python3 lacks lie in $WHEELS (default .whl);
# scripts/gpu/eval_wheels.sh fetches them elsewhere. What is compiled stays in $HERCULES_CACHE.
set -u
cd "$(dirname "$0")/../.." || exit 3
. scripts/gpu/site.sh

evaluate() { # NAME SETTING OPTIONS...
  local name=$1 setting=$2
  shift 2
  echo "== $name"
  timeout "${LIMIT_S:-560}" python3 -m cudahercules eval replay/demo --setting "$setting" --device gpu "$@" \
    --tasks "${TASKS:-families}" --logs "$out/logs-$name" >"$out/$name.md" 2>"$out/$name.err"
  local code=$?
  tail -5 "$out/$name.err"
  head -40 "$out/$name.md"
  if [ -e "$out/logs-$name" ]; then
    python3 -m cudahercules score "$out/logs-$name" --format json >"$out/$name.json"
  fi
  return $code
}

status=0
for name in ${*:-oneshot refine agent coder_and_judge tools}; do
  case $name in
    oneshot) evaluate oneshot oneshot --samples "${SAMPLES:-2}" ;;
    refine) evaluate refine refine -T rounds=7 ;;
    agent) evaluate agent agent ;;
    coder_and_judge) evaluate coder_and_judge agent -T agent=coder_and_judge -T rounds=3 ;;
    tools) python3 scripts/gpu/eval_tools.py | tee "$out/tools.txt" ;;
    *) echo "unknown: $name"; false ;;
  esac || status=1
done
exit $status
