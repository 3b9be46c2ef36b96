"""One evaluation from the command line or from Python: a thin face over Inspect's ``eval_set``.

The call is kept in its directory of logs, so that ``resume`` continues just that evaluation: finished samples
are not repeated, and model calls of unfinished ones come from Inspect's cache where they were paid already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from inspect_ai import Task as InspectTask
from inspect_ai import eval_set
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.model import CachePolicy, ModelCost, ModelInfo, get_model, get_model_info, set_model_info
from inspect_ai.model import Model as InspectModel
from pydantic import Field

from cudahercules.build.toolchain import find_toolchain
from cudahercules.errors import HerculesError, UsageError
from cudahercules.evaluate import registry
from cudahercules.evaluate.logs import first_error, read_records, statuses
from cudahercules.evaluate.progress import Board, shown_on
from cudahercules.evaluate.remembered import remembering
from cudahercules.score.record import Record
from cudahercules.task.model import Model

CALL = "hercules-eval.json"
"""The file in a directory of logs that says what was asked for."""
SETTINGS: dict[str, Callable[..., InspectTask]] = {
    "oneshot": registry.oneshot,
    "refine": registry.refine,
    "agent": registry.agent,
}


class Call(Model):
    """What one evaluation does. ``options`` are those of the setting (see
    :class:`cudahercules.evaluate.tasks.Options`); limits are for each sample, in tokens, US dollars and
    seconds; ``prices`` is Inspect's file of model prices; ``roles`` gives models to roles (``judge``).
    ``model_arguments`` go to the model's provider. A model call that fails for reasons of the server's is
    tried again ``retries`` times, with growing pauses (minutes in all)."""

    model: str
    setting: str = "oneshot"
    options: dict[str, Any] = Field(default_factory=dict)
    base_url: str | None = None
    model_arguments: dict[str, Any] = Field(default_factory=dict)
    temperature: float | None = None
    max_tokens: int | None = None
    token_limit: int | None = None
    cost_limit: float | None = None
    time_limit: int | None = None
    prices: str | None = None
    connections: int | None = None
    retries: int = 8
    roles: dict[str, str] = Field(default_factory=dict)


class Outcome(Model):
    """``finished`` is false where samples could not be judged: ``resume`` tries those again. ``error`` is
    what the first of them met."""

    directory: Path
    finished: bool
    error: str
    records: tuple[Record, ...]


def evaluate(
    call: Call,
    directory: Path | None = None,
    *,
    resume: bool = False,
    display: str = "none",
    tell: Callable[[str], None] = lambda _line: None,
    root: Path = Path("logs"),
) -> Outcome:
    """Run ``call`` and keep its logs in ``directory`` (a new one in ``root`` by default).

    ``resume`` continues the evaluation in ``directory``, or the newest one in ``root`` with the same call.
    ``display`` is Inspect's (full, rich, plain, log, none); ``tell`` is given a line of progress when it
    changes.

    Raises UsageError for what the caller got wrong, MachineError for what this machine lacks: both before a
    model is asked anything. Raises KeyboardInterrupt once an interrupted evaluation has closed its log.
    """
    task, model = inspect_task(call), inspect_model(call)
    if call.prices is not None:
        use_prices(Path(call.prices))
    find_toolchain()
    chosen = _directory(call, directory, root, resume)
    total = len(task.dataset) * (task.epochs or 1)
    done = _finished_samples(chosen) if resume else 0
    with remembering(chosen), shown_on(Board(total, tell, done)):
        try:
            _run(call, task, model, chosen, display)
        except PrerequisiteError as error:
            raise UsageError(_plain(error)) from error
    states = statuses(chosen)
    if "cancelled" in states:
        raise KeyboardInterrupt("the evaluation was cancelled")
    finished = all(state == "success" for state in states)
    return Outcome(
        directory=chosen,
        finished=finished,
        error="" if finished else first_error(chosen),
        records=read_records([chosen]),
    )


def inspect_task(call: Call) -> InspectTask:
    """The Inspect task that a call means. Raises UsageError."""
    if call.setting not in SETTINGS:
        raise UsageError(f"--setting {call.setting}: choose one of {', '.join(SETTINGS)}")
    return SETTINGS[call.setting](**call.options)


def inspect_model(call: Call) -> InspectModel:
    """The model that a call names. Raises UsageError for one that Inspect does not know, that lacks a package
    or a key, or that does not take the arguments."""
    try:
        with _quiet("none"):
            return get_model(call.model, base_url=call.base_url, memoize=False, **call.model_arguments)
    except PrerequisiteError as error:
        raise UsageError(_plain(error)) from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{call.model}: {error}") from error


def use_prices(path: Path) -> None:
    """Tell Inspect what models cost: a file (YAML or JSON) that maps each model's name to `input`, `output`,
    `input_cache_write` and `input_cache_read` in US dollars for a million tokens. Raises UsageError."""
    try:
        prices = yaml.safe_load(path.read_text(encoding="utf-8"))
        costs = {str(name): ModelCost(**price) for name, price in prices.items()}
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"--prices {path}: {str(error).splitlines()[0]}") from error
    for name, cost in costs.items():
        known = get_model_info(name) or ModelInfo()
        set_model_info(name, known.model_copy(update={"cost": cost}))


def _run(call: Call, task: InspectTask, model: InspectModel, directory: Path, display: str) -> None:
    generation: dict[str, Any] = {
        "temperature": call.temperature,
        "max_tokens": call.max_tokens,
        "max_connections": call.connections,
        "max_retries": call.retries,
    }
    if not call.model.startswith("replay/"):  # a replay costs nothing
        generation["cache"] = CachePolicy(expiry="4W", scopes={"evaluation": str(directory.resolve())})
    given = {name: value for name, value in generation.items() if value is not None}
    with _quiet(display):
        eval_set(
            task,
            log_dir=str(directory),
            retry_attempts=1,
            model=model,
            model_roles=dict(call.roles),
            display=display,  # type: ignore[arg-type]
            log_level="warning",
            ctl_server=False,
            token_limit=call.token_limit,
            cost_limit=call.cost_limit,
            time_limit=call.time_limit,
            **given,
        )


def _quiet(display: str) -> AbstractContextManager[Any]:
    """Without a display, nothing goes to stdout: Inspect greets there if hooks exist."""
    return redirect_stdout(StringIO()) if display == "none" else nullcontext()


# --- directories -----------------------------------------------------------------------------------


def _directory(call: Call, directory: Path | None, root: Path, resume: bool) -> Path:
    """Where the logs go; the call is written there, or compared with the one that is."""
    if resume:
        found = directory if directory is not None else _newest(call, root)
        _check_same(call, found)
        return found
    chosen = directory or root / f"{datetime.now():%Y%m%d-%H%M%S-%f}-{call.setting}-{_slug(call.model)}"
    if chosen.is_file() or (chosen.is_dir() and any(chosen.iterdir())):
        raise UsageError(f"{chosen} is in use: --resume continues what is there, or name a new directory")
    chosen.mkdir(parents=True, exist_ok=True)
    (chosen / CALL).write_text(call.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return chosen


def _newest(call: Call, root: Path) -> Path:
    same = [path.parent for path in root.glob(f"*/{CALL}") if _stored(path.parent) == call]
    if not same:
        raise UsageError(f"--resume: no evaluation in {root} was begun with these options; name its --logs")
    return max(same, key=lambda path: path.name)


def _check_same(call: Call, directory: Path) -> None:
    stored = _stored(directory)
    differing = [name for name in Call.model_fields if getattr(stored, name) != getattr(call, name)]
    if differing:
        first = differing[0]
        raise UsageError(
            f"--resume: {directory} was begun with {first} {getattr(stored, first)!r}, not "
            f"{getattr(call, first)!r}; begin a new evaluation for other options"
        )


def _stored(directory: Path) -> Call:
    try:
        return Call.model_validate_json((directory / CALL).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--resume: {directory} holds no evaluation that `hercules eval` began") from error


def _finished_samples(directory: Path) -> int:
    try:
        records: Sequence[Record] = read_records([directory])
    except HerculesError:
        return 0
    return sum(r.outcome != "infrastructure_error" for r in records)


def _slug(model: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "-" for c in model).strip("-")[-60:]


def _plain(error: Exception) -> str:
    """Inspect's message on one line, without its markup."""
    from rich.text import Text

    text = Text.from_markup(str(getattr(error, "message", error))).plain
    return " ".join(text.removeprefix("ERROR: ").split())
