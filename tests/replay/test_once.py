"""One replay in one process, as profilers see it, on a pretend GPU (see fake/)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from by_hand import add_launch, make_plan

from cudahercules.build.toolchain import find_toolchain
from cudahercules.record.plan import DeviceAnswer
from cudahercules.replay.client import environment_of
from cudahercules.replay.generator import device_code
from cudahercules.replay.messages import Load
from cudahercules.replay.once import ANSWERS_DIFFER

pytestmark = pytest.mark.usefixtures("pretend_gpu")


@pytest.fixture
def once(task, artifact, tmp_path):
    """Replay a plan once; exit code and what was printed."""

    def run(plan, *workloads):
        orders = [
            Load(
                task=task.model_dump_json(),
                workload=workload,
                kernels=str(device_code("90a", find_toolchain().nvcc)),
                plan=plan.canonical_json(),
                artifact=artifact.model_dump_json(),
                seed=1,
            ).model_dump_json()
            for workload in workloads
        ]
        (tmp_path / "orders").write_text("\n".join(orders))
        command = [sys.executable, "-m", "cudahercules.replay.once", str(tmp_path / "orders")]
        done = subprocess.run(
            command, env=environment_of("candidate"), capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_samples_are_taken_in_silence(once, plan):
    assert once(plan, "main", "main") == (0, "")


def test_a_plan_for_another_workload_is_refused(once, plan):
    status, said = once(plan, "main", "tiny")
    assert (status, said) == (1, "plan, artifact and workload do not belong together\n")


def test_a_gpu_that_answers_otherwise_is_told_apart(once, task):
    asked = DeviceAnswer(question="attribute 16", answer="1")
    status, said = once(make_plan(task, (add_launch(),), answers=(asked,)), "main")
    assert status == ANSWERS_DIFFER
    assert "Traceback" not in said
