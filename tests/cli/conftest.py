"""Driving the program in-process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_candidates import LAUNCH, PRODUCT, TASK, candidate

from cudahercules.cli import main
from cudahercules.judge.verdict import VERDICT, Verdict
from cudahercules.process import allow_children


@dataclass(frozen=True)
class Ended:
    """How one command line ended."""

    code: int
    out: str
    err: str

    @property
    def verdict(self) -> Verdict:
        return VERDICT.validate_json(self.out)

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def hercules(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """``hercules("grade", TASK, path)`` runs the program in this process; no traceback is ever right."""

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        allow_children()  # the program has ended, this process has not
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err, captured.err
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture
def graded(hercules, tmp_path: Path) -> Callable[..., Ended]:
    """``graded(kernel, host)`` writes a candidate, grades its smoke workload and checks the envelope."""

    def run(kernel: str = PRODUCT, host: str = LAUNCH, *options: object, before: str = "") -> Ended:
        file = tmp_path / "mine.cu"
        file.write_text(candidate(kernel, host, before))
        ended = hercules("grade", TASK, file, "--device", "cpu", "--json", "--smoke", *options)
        assert ended.verdict.candidate == "mine.cu" and ended.verdict.task == TASK
        return ended

    return run
