"""Our Triton kernels for fused convolutions, in Triton's interpreter on the CPU, against references.

It shows that they compute the task at odd shapes. That they are fast needs a GPU.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interpret_triton.py")
MISSING = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]


@pytest.mark.slow  # half a minute a family
@pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
@pytest.mark.parametrize(
    "task",
    [
        "conv2d_fprop/fp16",
        "conv2d_fprop/fp32",
        "conv2d_fprop_bias_relu/fp16",
        "conv2d_fprop_prologue/fp16",
        "conv2d_wgrad/fp16",
    ],
)
def test_kernels_compute_the_task_in_the_interpreter(task):
    ran = subprocess.run(
        [sys.executable, SCRIPT, f"kernel/{task}"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    assert ran.stdout.count(" right\n") >= 15
