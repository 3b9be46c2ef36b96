"""Inspect's logs as records for the metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from inspect_ai.log import (
    EvalError,
    EvalLog,
    EvalSample,
    list_eval_logs,
    read_eval_log,
    read_eval_log_samples,
)

from cudahercules.errors import UsageError
from cudahercules.evaluate.scorer import NAME
from cudahercules.score.record import Record, Usage

_CAUSE = re.compile(r"^(\S.*)\n\nThe above exception was the direct cause", re.MULTILINE)
"""The last line of a traceback that another one follows."""


def read_records(paths: Sequence[Path]) -> tuple[Record, ...]:
    """Every answer in the logs (files, or directories of them), without those that a later attempt at the
    same evaluation took over. An answer that met an error of ours counts as not judged.

    Raises UsageError where there is no log of ours."""
    logs = _latest([log for path in paths for log in _logs(path)])
    records = tuple(record for log in logs for record in _records(log))
    if not records:
        raise UsageError(f"no answers yet in {', '.join(map(str, paths))}")
    return records


def statuses(path: Path) -> list[str]:
    """How the newest attempt at each evaluation in a directory ended (Inspect's words)."""
    return [log.status for log in _latest(list(_logs(path)))]


def first_error(path: Path) -> str:
    """What went wrong in the first sample of a directory that has no score; "" if all have one."""
    for log in _latest(list(_logs(path))):
        if log.error is not None:
            return log.error.message
        for sample in read_eval_log_samples(log.location, all_samples_required=False):
            if sample.error is not None:
                return _reason(sample.error)
    return ""


def _reason(error: EvalError) -> str:
    """Its message; for one that only says that trying again was in vain, what went wrong the last time."""
    causes = _CAUSE.findall(error.traceback) if error.message.startswith("RetryError") else []
    return f"{causes[-1]} (tried again in vain)" if causes else error.message


def _logs(path: Path) -> Iterator[EvalLog]:
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or directory")
    names = [info.name for info in list_eval_logs(str(path))] if path.is_dir() else [str(path)]
    found = False
    for name in names:
        try:
            log = read_eval_log(name, header_only=True)
        except Exception as error:  # whatever a damaged file makes the reader raise
            damaged = name.removeprefix("file://")
            raise UsageError(
                f"{damaged}: cannot be read as an Inspect log ({error}): move it away, or name logs"
            ) from error
        if "setting" in (log.eval.metadata or {}):
            found = True
            yield log
    if not found:
        raise UsageError(f"{path}: no log of a CUDAHercules evaluation here")


def _latest(logs: Sequence[EvalLog]) -> list[EvalLog]:
    """The newest log of each evaluation: every attempt takes over the finished samples of the one before."""
    newest: dict[str, EvalLog] = {}
    for log in sorted(logs, key=lambda log: log.eval.created):
        newest[log.eval.task_id] = log
    return list(newest.values())


def _records(log: EvalLog) -> Iterator[Record]:
    for sample in read_eval_log_samples(log.location, all_samples_required=False):
        yield record_of(sample, log)


def record_of(sample: EvalSample, log: EvalLog) -> Record:
    """One sample of a log as a record, with what it cost."""
    score = (sample.scores or {}).get(NAME)
    stored = (score.metadata or {}).get("record") if score is not None else None
    if stored is None:
        stored = _not_judged(sample, log)
    return Record.model_validate({**stored, "model": log.eval.model, "usage": usage_of(sample)})


def _not_judged(sample: EvalSample, log: EvalLog) -> dict[str, object]:
    about, whole = sample.metadata, log.eval.metadata or {}
    return {
        "setting": whole.get("setting", "unknown"),
        "task": str(sample.id),
        "family": about.get("family", "unknown"),
        "task_class": about.get("class", "unknown"),
        "target": about.get("target", "unknown"),
        "domain": about.get("domain", "unknown"),
        "epoch": sample.epoch,
        "outcome": "infrastructure_error",
        "compiled": False,
        "device": whole.get("device", "cpu"),
    }


def usage_of(sample: EvalSample) -> Usage:
    """Tokens and money over all models that took part; cached input counts as input."""
    used = list(sample.model_usage.values())
    money = [u.total_cost for u in used]
    inputs = sum(
        u.input_tokens + (u.input_tokens_cache_read or 0) + (u.input_tokens_cache_write or 0) for u in used
    )
    return Usage(
        input_tokens=inputs,
        output_tokens=sum(u.output_tokens for u in used),
        money=None if None in money else sum(m for m in money if m is not None),
        seconds=sample.total_time,
    )
