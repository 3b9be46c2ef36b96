"""Every command in the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from console import Block, blocks, plain

from cudahercules.judge.grade import choose_device
from cudahercules.task.load import BUNDLED

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SESSIONS = [page for page in PAGES if any(b.language == "console" for b in blocks(page))]
KNOWN_MARKS = ("slow", "gpu", "checkout", "ctrl-c", "inspect")
HAS_INSPECT = find_spec("inspect_ai") is not None


@pytest.fixture
def shell(tmp_path):
    """Run a script in a session that keeps directory and exported variables."""
    return Shell(tmp_path)


class Shell:
    def __init__(self, directory: Path):
        self.work, self.state = directory / "work", directory / "state"
        self.work.mkdir()
        programs = directory / "bin"
        programs.mkdir()
        program = programs / "hercules"
        source = shlex.quote(str(ROOT / "src"))
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={source} exec {shlex.quote(sys.executable)} -m cudahercules "$@"\n'
        )
        program.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "80"}
        self.environment.pop("HERCULES_TASKS", None)
        self.state.write_text(f"cd {shlex.quote(str(self.work))}\n")
        for name in ("naive.cu", "tiled.cu", "mutants", "hostile"):  # the files that pages speak about
            source_file = BUNDLED / "kernel" / "gemm" / name
            copy = shutil.copytree if source_file.is_dir() else shutil.copy
            copy(source_file, self.work / name)

    def start(self, block: Block) -> subprocess.Popen[str]:
        state = shlex.quote(str(self.state))
        lines = [f". {state}", "set -e"]
        if block.has("checkout"):
            lines.append(f"cd {shlex.quote(str(ROOT))}")
        *first, last = block.commands
        # The state is kept from before the last command where that ends the shell or is interrupted.
        keep = f'{{ export -p; echo cd $(printf %q "$PWD"); }} > {state}.new; mv {state}.new {state}'
        lines += [*first, *([] if block.has("checkout") else [keep])]
        if block.has("ctrl-c"):
            lines.append(f"exec {last}")
        else:
            lines += ["set +e", last, "code=$?"]
            lines += ["exit $code"] if block.has("checkout") else [keep, "exit $code"]
        return subprocess.Popen(
            ["bash", "-c", "\n".join(lines)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, block: Block) -> tuple[int, str]:
        process = self.start(block)
        try:
            if block.has("ctrl-c"):
                return self._interrupted(process, block)
            out, _ = process.communicate(timeout=280)
            return process.returncode, out
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _interrupted(self, process, block: Block) -> tuple[int, str]:
        assert process.stdout is not None
        out, until = "", time.monotonic() + 120
        while not all(plain(line) in plain(out) for line in block.outputs[:-1]):
            assert time.monotonic() < until, out
            line = process.stdout.readline()
            assert line, f"ended early: {out}"
            out += line
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        return process.returncode, out + rest


def check(block: Block, shell: Shell) -> None:
    code, out = shell.run(block)
    where = f"{block.page.name}:{block.line}"
    allowed = [int(c) for c in block.value("exit", "0").split(",")]
    assert code in allowed, f"{where}: exit code {code}\n{out}"
    assert "Traceback" not in out, f"{where}\n{out}"
    for line in block.outputs:
        assert plain(line) in plain(out), f"{where}: the page shows {line!r}; printed was\n{out}"


def session(page: Path, shell: Shell, slow: bool) -> int:
    """Play a page; returns how many blocks ran. A page with slow blocks is played whole in the slow tier."""
    ran = 0
    for block in blocks(page):
        if name := block.value("file"):
            (shell.work / name).write_text(block.text)
        if block.language != "console" or block.has("gpu") or (block.has("slow") and not slow):
            continue
        if block.has("inspect") and not HAS_INSPECT:
            continue
        check(block, shell)
        ran += 1
    return ran


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", SESSIONS, ids=lambda p: p.name)
def test_the_commands_of_a_page(page, shell):
    ran = session(page, shell, slow=False)
    shown = [b for b in blocks(page) if b.language == "console"]
    if not ran and not HAS_INSPECT and all(b.has("inspect") for b in shown):
        pytest.skip("Inspect is not installed: pip install -e '.[evaluate]'")
    assert ran or all(b.has("slow") or b.has("gpu") for b in shown)


def marked(mark: str) -> list:
    found = [b for page in SESSIONS for b in blocks(page) if b.language == "console" and b.has(mark)]
    return [pytest.param(b, id=f"{b.page.name}:{b.line}") for b in found]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", marked("slow"))
def test_slow_commands(block, shell):
    if block.has("inspect") and not HAS_INSPECT:
        pytest.skip("Inspect is not installed: pip install -e '.[evaluate]'")
    check(block, shell)


@pytest.mark.gpu
@pytest.mark.parametrize("block", marked("gpu"))
def test_commands_for_a_gpu(block, shell):
    choose_device("gpu")
    for other in blocks(block.page):
        if name := other.value("file"):
            (shell.work / name).write_text(other.text)
    check(block, shell)


def test_marks_are_known():
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                unknown = [m for m in block.marks if m not in KNOWN_MARKS and not m.startswith("exit=")]
                assert not unknown, f"{page.name}:{block.line}: {unknown}"
                assert block.commands, f"{page.name}:{block.line}: a console block without a command"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_no_command_hides_in_another_block(page):
    """A command that is shown outside a ``console`` block would never be run."""
    for block in blocks(page):
        if block.language != "console":
            for line in block.text.splitlines():
                words = line.removeprefix("$ ").split()
                typed = words[:1] in (["hercules"], ["make"], ["pip"]) and len(words) > 1
                assert not typed, f"{page.name}:{block.line}: {line}"
