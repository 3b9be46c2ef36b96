"""The file that a lint of many tasks keeps, and which tasks it is about."""

import pytest

from cudahercules.errors import UsageError
from cudahercules.judge import lint_table
from cudahercules.judge.lint import LintReport, LintRow, content_hash
from cudahercules.judge.lint_log import append, finished, first_members, reports, shard
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.task.load import all_tasks, load_task


def row(subject, sort, expected, outcome="ok", **more):
    return LintRow(subject=subject, sort=sort, expected=expected, got=expected, outcome=outcome, **more)


def report(task, device="cpu", rows=(), **more):
    known = {"release": task.release, "content": content_hash(task), "seed": "1"}
    return LintReport(task=task.id, device=device, rows=tuple(rows), **known, **more)


@pytest.fixture
def gemm():
    return load_task("kernel/gemm/fp32@general")


def test_what_is_in_the_file_is_known_again(tmp_path, gemm):
    file = tmp_path / "lint.jsonl"
    assert finished(file, [gemm], "cpu") == {} and file.exists()
    mine = report(gemm, rows=[row("naive.cu", "honest", "correct", share=0.25)])
    append(file, mine)
    assert finished(file, [gemm], "cpu") == {gemm.id: mine}
    assert finished(file, [gemm], "gpu") == {}
    assert finished(file, [gemm.model_copy(update={"title": "another"})], "cpu") == {gemm.id: mine}
    assert finished(file, [gemm.model_copy(update={"mutants": gemm.mutants[1:]})], "cpu") == {}


def test_the_last_of_several_lines_counts_and_a_cut_one_is_dropped(tmp_path, gemm):
    file = tmp_path / "lint.jsonl"
    append(file, report(gemm, rows=[row("naive.cu", "honest", "correct", "failed")]))
    append(file, report(gemm))
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"task": "kernel/ge')
    assert reports(file)[f"{gemm.id} on cpu"].ok
    assert finished(file, [gemm], "cpu")[gemm.id].ok
    assert file.read_bytes() == whole  # so that the next line is whole again


def test_another_file_is_refused(tmp_path, gemm):
    (tmp_path / "notes").write_text("milk\n")
    with pytest.raises(UsageError, match="line 1 is no report"):
        finished(tmp_path / "notes", [gemm], "cpu")
    with pytest.raises(UsageError, match="this is no file"):
        finished(tmp_path, [gemm], "cpu")


def test_shards_are_parts_that_keep_the_targets_of_a_member_together():
    tasks = all_tasks()
    parts = [shard(tasks, f"{k}/5") for k in range(1, 6)]
    assert sorted(t.id for part in parts for t in part) == sorted(t.id for t in tasks)
    where = {t.id: k for k, part in enumerate(parts) for t in part}
    for task in tasks:
        assert len({where[t.id] for t in tasks if (t.family, t.member) == (task.family, task.member)}) == 1
    assert shard(tasks[3:], "2/5") == tuple(t for t in parts[1] if t in tasks[3:])  # stable by name


@pytest.mark.parametrize("which", ["0/8", "9/8", "2", "2/8/1", "a/b", "1/0"])
def test_a_wrong_shard_is_refused(which):
    with pytest.raises(UsageError, match="as in 2/8"):
        shard((), which)


def test_one_task_a_family():
    first = first_members(all_tasks())
    assert len({t.family for t in first}) == len(first) == len({t.family for t in all_tasks()})
    assert {"kernel/gemm/fp32@general", "module/attention_fwd/hdim64_fp16_full@general"} <= {
        t.id for t in first
    }
    only = [t for t in all_tasks() if t.id.startswith("kernel/gemm/") and t.target.value == "hopper"]
    assert [t.target.value for t in first_members(only)] == ["hopper"]


def test_the_table_joins_what_two_judges_found(tmp_path, gemm, capsys):
    cpu = report(
        gemm,
        rows=[
            row("naive.cu", "honest", "correct", share=0.25),
            row("mutants/a.cu", "mutant", "incorrect"),
            row("c: all zeros", "answer", "rejected"),
            row("c: rows swapped", "answer", "rejected", "not_run"),
            row("c: shifted", "answer", "rejected", "failed", detail="in 0 of 3 workloads"),
            row("torch_mm", "expert", "accepted", "not_run"),
            row("changes by machine", "mechanical", "rejected", detail="7 of 7 rejected, 1 recorded"),
        ],
    )
    standing = Standing(
        expert="torch_mm", workload="big", outcome="ranked", microseconds=5.0, largest_error=0.125
    )
    panel = TaskPanel(task=gemm.id, release=gemm.release, date="d", driver="13", standings=(standing,))
    gpu = report(
        gemm,
        "gpu",
        [
            row("naive.cu", "honest", "correct", share=0.31),
            row("mutants/a.cu", "mutant", "incorrect", "failed"),
            row("torch_mm on big", "expert", "accepted", share=0.125),
            row("other on big", "expert", "accepted", "failed", detail="a | b"),
        ],
        machine="NVIDIA H200, driver 13.0",
        panel=panel,
        seconds={"coming up": 4.0, "grading": 3.0, "ranking": 2.0},
    )
    for name, found in (("cpu", cpu), ("gpu", gpu)):
        append(tmp_path / name, found)
    assert lint_table.main([str(tmp_path / "cpu"), str(tmp_path / "gpu"), "--panels", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert (
        f"| `{gemm.id}` | 31% | torch_mm 12%, other failed | 1 of 2 | 0 of 1 | 7 of 7 |  | cpu, gpu |" in text
    )
    assert "1 tasks on NVIDIA H200, driver 13.0 and the CPU judge; 3 requirements not met." in text
    assert "in 0 of 3 workloads" in text and "a \\| b" in text and "6.0 s a task" in text
    assert '"torch_mm"' in (tmp_path / "nvidia-h200.json").read_text()
    assert lint_table.main([str(tmp_path / "nothing")]) == 2


def test_a_change_of_the_familys_code_is_another_content(tmp_path, gemm):
    import shutil

    copy = tmp_path / "kernel/gemm"
    shutil.copytree(gemm.directory, copy, ignore=shutil.ignore_patterns("__pycache__"))
    moved = gemm.model_copy(update={"directory": copy})
    assert content_hash(moved) == content_hash(gemm)
    (copy / "strategy.md").write_text("advice\n")
    assert content_hash(moved) == content_hash(gemm)
    (copy / "experts.py").write_text("# changed\n")
    assert content_hash(moved) != content_hash(gemm)
