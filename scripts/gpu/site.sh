# Sourced by the scripts beside it, from the root of the repository: where results go ($out), Python's path with the wheels
# that python3 lacks unpacked, and the cache. Wheels lie in $WHEELS (default .whl); they are unpacked again when they
# change.
out=${OUT:-out}
wheels=${WHEELS:-.whl}
site=${TMPDIR:-/tmp}/hercules-site
export HERCULES_CACHE=${HERCULES_CACHE:-${TMPDIR:-/tmp}/hercules-cache}
mkdir -p "$out"
if ls "$wheels"/*.whl >/dev/null 2>&1; then
  mark=$(stat -c '%n %s' "$wheels"/*.whl | cksum | cut -d' ' -f1)
  if [ ! -e "$site/.complete-$mark" ]; then
    rm -rf "$site"
    python3 -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
      --upgrade --target "$site" "$wheels"/*.whl && touch "$site/.complete-$mark" || exit 3
  fi
fi
export PYTHONPATH="$PWD/src:$site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
