#!/bin/sh
# Make a Python environment for this checkout and print the command that runs Python in it.
#
#   scripts/environment.sh demo|test|check
#
# Creates .venv and installs the package there. Where that cannot work (no network) but an interpreter
# at hand already has what is needed, that one is used with src on PYTHONPATH instead; so is, before
# anything is tried, one that has it all by a PYTHONPATH that is set (unpacked wheels, say).
# HERCULES_PYTHON=/path/to/python skips all of this.
set -u
cd "$(dirname "$0")/.." || exit 3
purpose=${1:-demo}
log=.venv-install.log

say() { echo "environment: $*" >&2; }

path=src${PYTHONPATH:+:$PYTHONPATH}
if [ -n "${HERCULES_PYTHON:-}" ]; then
  echo "env PYTHONPATH=$path $HERCULES_PYTHON"
  exit 0
fi

# --- what to install -------------------------------------------------------------------------------
extras=sass
[ "$purpose" = demo ] || extras=dev,sass
command -v nvcc >/dev/null 2>&1 || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || extras=$extras,toolchain
[ "$purpose" = check ] || [ ! -e /dev/nvidiactl ] || extras=$extras,gpu

# Imports that must succeed before another interpreter may stand in.
needed="array_api_compat, elftools, ml_dtypes, numpy, pydantic, rich, typer, yaml"
[ "$purpose" = test ] && needed="$needed, hypothesis, pytest"

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
ready() { PYTHONPATH=$path "$1" -c "import cudahercules, $needed" >/dev/null 2>&1; }

# --- an environment of an earlier run --------------------------------------------------------------
installed() {
  [ -x .venv/bin/python ] || return 1
  for extra in $(echo "$extras" | tr , ' '); do
    [ -e ".venv/.installed-$extra" ] && [ ! pyproject.toml -nt ".venv/.installed-$extra" ] || return 1
  done
}
if installed; then
  echo .venv/bin/python
  exit 0
fi

# --- one that PYTHONPATH completes -----------------------------------------------------------------
if [ -n "${PYTHONPATH:-}" ] && new_enough python3 && ready python3; then
  say "using python3, which has all that is needed on PYTHONPATH"
  echo "env PYTHONPATH=$path python3"
  exit 0
fi

# --- a new one -------------------------------------------------------------------------------------
python=
for candidate in python3.12 python3.11 python3.13 python3.14 python3; do
  if command -v $candidate >/dev/null 2>&1 && new_enough $candidate; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  say "no Python 3.11 or newer on PATH; install one (Debian, Ubuntu: apt-get install python3 python3-venv)"
  exit 3
fi

# A torch that is already there is reused: it is by far the largest thing to install.
shared=
case $extras in *gpu*) "$python" -c 'import torch' >/dev/null 2>&1 && shared=--system-site-packages ;; esac
say "installing [$extras] into .venv with $python (log: $log)"
if { [ -x .venv/bin/python ] || "$python" -m venv $shared .venv; } >"$log" 2>&1 &&
  .venv/bin/python -m pip install --disable-pip-version-check --retries 2 --timeout 10 -e ".[$extras]" >>"$log" 2>&1; then
  for extra in $(echo "$extras" | tr , ' '); do touch ".venv/.installed-$extra"; done
  echo .venv/bin/python
  exit 0
fi

# --- or what is there already ----------------------------------------------------------------------
for candidate in .venv/bin/python python3.12 python3.11 python3.13 python3.14 python3; do
  if command -v $candidate >/dev/null 2>&1 && new_enough $candidate && ready $candidate; then
    say "installing did not work (see $log); using $candidate, which has all that is needed"
    echo "env PYTHONPATH=$path $candidate"
    exit 0
  fi
done
say "installing did not work and no Python here has what is needed. The last lines of $log:"
tail -n 5 "$log" >&2
exit 3
