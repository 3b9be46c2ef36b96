"""Evidence from strangers: what its verdict says about itself leads nowhere else."""

import json

import pytest

from cudahercules.cache import file_digest
from cudahercules.judge import evidence
from cudahercules.judge.grade import grade
from cudahercules.task.load import load_task
from cudahercules.task.model import WorkloadRole


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    place = tmp_path_factory.mktemp("evidence") / "good"
    task = load_task("kernel/gemm/fp32@general")
    grade(task, task.directory / "naive.cu", "cpu", evidence=place, roles=(WorkloadRole.SMOKE,))
    return place


def written(place, verdict: bytes):
    """The evidence with another verdict, whose sum is right."""
    (place / "verdict.json").write_bytes(verdict)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["sha256"]["verdict.json"] = file_digest(place / "verdict.json")
    (place / "manifest.json").write_text(json.dumps(manifest))
    return evidence.verify(place)


def test_it_is_well_as_it_was_written(good):
    verdict = (good / "verdict.json").read_bytes()
    assert written(good, verdict) == ()


@pytest.mark.parametrize("name", ["../verdict", "A" * 5000, "smoke\0", "/etc/passwd", ""])
def test_a_workload_whose_name_is_a_path(good, name):
    before = (good / "verdict.json").read_bytes()
    verdict = json.loads(before)
    verdict["checks"][0]["workload"] = name
    try:
        (problem,) = written(good, json.dumps(verdict).encode())
    finally:
        (good / "verdict.json").write_bytes(before)
    assert problem == f"plans/{name}.json is missing, the verdict names it"


def test_a_verdict_that_is_no_text(good):
    before = (good / "verdict.json").read_bytes()
    try:
        (problem,) = written(good, before[:100] + b"\xff" + before[100:])
    finally:
        written(good, before)
    assert problem.startswith("verdict.json cannot be read: ")
