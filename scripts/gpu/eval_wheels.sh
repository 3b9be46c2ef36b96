#!/bin/bash
# The wheels that scripts/gpu/eval.sh needs on a machine without network: everything that the extra `evaluate` brings for
# Python 3.12, and the package's own dependencies, in .whl (or $WHEELS), under 60 MiB together.
#
#   scripts/gpu/eval_wheels.sh [PIP]      PIP: the pip to download with (default: python3 -m pip)
#
# Left out: numpy (it comes with the torch that is there), debugpy (Inspect imports it only to debug), and the GPU extra
# (cuda-bindings, nvidia-ml-py), which must be there already. Inspect's own
# wheel is packed again without its sandbox tools, two binaries of 14 MiB that this project does not use.
set -euo pipefail
cd "$(dirname "$0")/../.."
pip=${*:-python3 -m pip}
wheels=${WHEELS:-.whl}
mkdir -p "$wheels"
$pip download -q --disable-pip-version-check --only-binary=:all: --dest "$wheels" \
  --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
  "inspect-ai>=0.3.285,<0.4" typer pyelftools ml-dtypes array-api-compat
rm -f "$wheels"/numpy-*.whl "$wheels"/debugpy-*.whl
python3 - "$wheels" <<'PY'
"""Pack Inspect's wheel again without its sandbox tools."""
import sys
import zipfile
from pathlib import Path

(wheel,) = Path(sys.argv[1]).glob("inspect_ai-*.whl")
small = wheel.with_suffix(".small")
dropped = "inspect_ai/binaries/"
with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as new:
    for item in old.infolist():
        if item.filename.startswith(dropped):
            continue
        data = old.read(item)
        if item.filename.endswith(".dist-info/RECORD"):
            data = b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(dropped.encode()))
        new.writestr(item, data)
small.replace(wheel)
PY
echo "$(ls "$wheels"/*.whl | wc -l) wheels, $(du -cm "$wheels"/*.whl | tail -1 | cut -f1) MiB in $wheels"
