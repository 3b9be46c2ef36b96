"""``emulator coverage``: the list of expert files, and what becomes of one. Nothing is fetched here."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date

import pytest
from pydantic import ValidationError

from cudahercules.cli import main
from cudahercules.emulator.corpus import survey as survey_module
from cudahercules.emulator.corpus.manifest import OWN, TOOLKIT, ExpertFile, Manifest, manifest
from cudahercules.emulator.corpus.page import counts, files_that_count, markdown
from cudahercules.emulator.corpus.survey import Row, Survey, examine, select, survey
from cudahercules.errors import UsageError
from cudahercules.task.load import all_tasks, load_task


def _file(code: str, **more: object) -> ExpertFile:
    row = {"name": "x", "origin": TOOLKIT, "path": "x.cu", "targets": ("ampere",), "seconds": 1, "code": code}
    return ExpertFile.model_validate(row | more)


def test_the_list_is_long_and_its_own_files_exist():
    files = manifest().files
    assert len(files) >= 150
    assert {"cutlass", "cccl", "flashinfer", "deepgemm", TOOLKIT, OWN} <= {f.origin for f in files}
    for file in files:
        if file.origin == OWN:
            task = load_task(file.task)
            assert task.id == file.task and (task.directory / file.path).is_file()
    tuned = {(load_task(f.task).family, f.path) for f in files if "tuned" in f.path}
    assert tuned == {(t.family, c) for t in all_tasks() for c in t.candidates if "tuned" in c}


def test_a_wheel_that_is_not_listed_is_refused():
    with pytest.raises(ValidationError, match="no wheel 'nowhere'"):
        Manifest(wheels={}, files=(_file("", origin="nowhere"),))
    with pytest.raises(ValidationError, match="listed twice: x"):
        Manifest(wheels={}, files=(_file(""), _file("")))


def test_known_and_unknown_instructions_and_files_that_do_not_count():
    good = examine(_file("__global__ void k(int* x) { x[threadIdx.x] *= 3; }"), "ampere")
    assert good.status == "supported" and good.kernels == 1 and good.instructions > 5
    stopped = examine(
        _file(
            '__global__ void k(int* x) { asm volatile("pmevent 3;"); asm volatile("pmevent 3;"); *x = 1; }'
        ),
        "ampere",
    )
    assert stopped.status == "stopped" and stopped.stoppers == {"pmevent": 2}
    broken = examine(_file("__global__ void k() { nonsense; }"), "ampere")
    assert broken.status == "refused" and broken.message.startswith("nvcc: source.cu(1)")
    # nvcc lets inline PTX of a newer architecture through; ptxas does not
    newer = examine(_file('__global__ void k() { asm volatile("fence.proxy.async;"); }'), "ampere")
    assert newer.status == "refused" and newer.message.startswith("ptxas: ")


def test_cheap_files_first_and_none_after_the_time(monkeypatch):
    chosen = select(("ampere", "hopper"), "cub/*")
    seconds = [file.seconds for file, _ in chosen]
    assert seconds == sorted(seconds) and {t for _, t in chosen} == {"ampere", "hopper"}
    with pytest.raises(UsageError, match="nothing_like_it"):
        select(("ampere",), "nothing_like_it")

    def row(file: ExpertFile, target: str) -> Row:
        return Row(file=file.name, origin=file.origin, target=target, status="supported")

    cached = chosen[-1][0].name
    monkeypatch.setattr(survey_module, "examine", row)
    monkeypatch.setattr(survey_module, "at_hand", lambda file, target: file.name == cached)
    monkeypatch.setattr(survey_module.time, "monotonic", iter([0.0, 1.0, 2.0, *[99.0] * 1000]).__next__)
    found = survey(chosen, jobs=1, within_s=10)
    there = sum(file.name == cached for file, _ in chosen)
    assert Counter(r.status for r in found.rows) == {
        "supported": 2 + there,
        "not_tried": len(chosen) - 2 - there,
    }


def test_what_the_page_counts():
    def row(file: str, target: str, status: str, *stoppers: str) -> Row:
        return Row.model_validate(
            {"file": file, "origin": "cutlass", "target": target, "status": status}
            | {"stoppers": dict.fromkeys(stoppers, 2)}
        )

    found = Survey(
        toolchain="nvcc 13",
        wheels={"nvidia-cutlass": "4.2.0.0"},
        rows=(
            row("a", "ampere", "supported"),
            row("a", "hopper", "stopped", "tcgen05.ld", "x|y"),
            row("b", "hopper", "stopped", "tcgen05.ld"),
            row("c", "ampere", "refused"),
            row("d", "ampere", "supported"),
        ),
    )
    assert counts(found, "ampere") == (2, 2) and counts(found, "hopper") == (0, 2)
    assert files_that_count(found) == (1, 3)
    page = markdown(found, date(2026, 12, 1))
    assert "| `tcgen05.ld` | 2 |" in page and "| `x\\|y` | 1 |" in page
    assert "| ampere (sm_80) | 2 | 2 | 1 | 0 |" in page and "2026-12-01" in page


def test_command(capsys):
    assert main(["emulator", "coverage", "--only", "own/rotary", "--target", "ampere", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["file"], r["status"]) for r in found["rows"]] == [("own/rotary", "supported")]
    assert main(["emulator", "coverage", "--target", "volta"]) == 2
    assert "no target 'volta'" in capsys.readouterr().err
    assert main(["emulator", "coverage", "--only", "nothing"]) == 2
    assert "no file of the corpus is called 'nothing'" in capsys.readouterr().err
