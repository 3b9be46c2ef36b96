"""``eval`` and ``score``: models and agents (docs/evaluating.md)."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cudahercules.cli.common import Progress, emit, explained, fail
from cudahercules.errors import UsageError

PLAIN_EVERY_S = 60.0
"""How often progress is printed where stderr is no terminal."""
INTERRUPTED = 130

Format = Annotated[str, typer.Option("--format", metavar="md|csv|json", help="How the scores are printed.")]


@explained
def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="As Inspect names it: openai/..., anthropic/..., openai-api/SERVICE/NAME; or replay/demo.",
        ),
    ],
    setting: Annotated[str, typer.Option(metavar="NAME", help="oneshot, refine or agent.")] = "oneshot",
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="families (one task of each; the default), demo (of four families; the default of "
            "replay/demo), all, or names of tasks and families, with commas.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Only tasks for this target (hopper, general, ...).")
    ] = None,
    samples: Annotated[
        int, typer.Option(metavar="N", min=1, help="Answers a task; pass@k needs several.")
    ] = 1,
    device: Annotated[
        str, typer.Option(metavar="auto|gpu|cpu", help="Where answers are judged; auto takes a GPU.")
    ] = "auto",
    level: Annotated[
        str, typer.Option(metavar="full|algorithm|name", help="How much the prompt tells.")
    ] = "full",
    strategy: Annotated[
        bool, typer.Option("--strategy", help="Add the experts' strategy to the prompt, in words.")
    ] = False,
    exemplars: Annotated[
        int, typer.Option(metavar="N", min=0, help="Solved tasks of other families before the task.")
    ] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-T", metavar="NAME=VALUE", help="Any other option of the setting (docs/evaluating.md)."
        ),
    ] = None,
    model_argument: Annotated[
        list[str] | None,
        typer.Option("-M", metavar="NAME=VALUE", help="An argument of the model's provider."),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=MODEL", help="Another model for a role, such as judge=..."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the model is served, for a server of your own.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of the model; its provider's own by default.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", min=1, help="Of one answer.")] = None,
    token_limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens for each sample.")
    ] = None,
    cost_limit: Annotated[
        float | None, typer.Option(metavar="US$", min=0, help="Money for each sample; needs --prices.")
    ] = None,
    time_limit: Annotated[int | None, typer.Option(metavar="SECONDS", min=1, help="For each sample.")] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Inspect's file of model prices (YAML or JSON).")
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Model calls at a time; Inspect's default otherwise."),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Of a model call that the server fails, with growing pauses."),
    ] = 8,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where logs go; a new directory in logs/ by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the evaluation that was begun with the same options.")
    ] = False,
    display: Annotated[
        str, typer.Option(metavar="NAME", help="Inspect's display (full, rich, plain) instead of one line.")
    ] = "none",
    form: Format = "md",
) -> None:
    """Ask a model for solutions, judge them, and print its scores."""
    _need_inspect()
    from cudahercules.evaluate.run import Call, evaluate

    options = {
        "tasks": tasks or ("demo" if model == "replay/demo" else "families"),
        "target": target,
        "samples": samples,
        "device": device,
        "level": level,
        "strategy": strategy,
        "exemplars": exemplars,
        **_pairs("-T", option),
    }
    call = Call(
        model=model,
        setting=setting,
        options=options,
        base_url=base_url,
        model_arguments=_pairs("-M", model_argument),
        temperature=temperature,
        max_tokens=max_tokens,
        token_limit=token_limit,
        cost_limit=cost_limit,
        time_limit=time_limit,
        prices=str(prices) if prices else None,
        connections=connections,
        retries=retries,
        roles={name: str(value) for name, value in _pairs("--role", role).items()},
    )
    try:
        with _line_of_progress() as tell, _interrupts_go_to_inspect():
            outcome = evaluate(call, logs, resume=resume, display=display, tell=tell)
    except KeyboardInterrupt:
        fail("interrupted: the same command with --resume goes on where this one stopped", INTERRUPTED)
    _print_scores(outcome.records, form)
    unjudged = sum(not r.judged for r in outcome.records)
    print(f"Logs: {outcome.directory} (`inspect view --log-dir {outcome.directory}`)", file=sys.stderr)
    if not outcome.finished:
        what = (
            f"{unjudged} answers have no verdict; the first met: {outcome.error.strip() or 'an interruption'}"
        )
        fail(f"{what}\nThe same command with --resume tries them again", 3)


@explained
def score(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOGS...", help="Inspect logs, or directories of them.")
    ],
    form: Format = "md",
) -> None:
    """Compute all metrics from the logs of evaluations."""
    _need_inspect()
    from cudahercules.evaluate.logs import read_records

    _print_scores(read_records(logs), form)


def _print_scores(records: Any, form: str) -> None:
    from cudahercules.score.summary import summaries
    from cudahercules.score.table import render

    emit(render(summaries(records), form))


def _need_inspect() -> None:
    from importlib.util import find_spec

    from cudahercules.build.toolchain import install_extra

    if find_spec("inspect_ai") is None:
        raise UsageError(
            f"models are evaluated with Inspect, which is not installed: {install_extra('evaluate')}"
        )


def _pairs(flag: str, words: list[str] | None) -> dict[str, Any]:
    """``name=value`` words; values are read as YAML, as Inspect reads them."""
    import yaml

    pairs: dict[str, Any] = {}
    for word in words or []:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{flag} {word!r}: write {flag} name=value")
        try:
            pairs[name.replace("-", "_")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(
                f"{flag} {word!r}: the value cannot be read as YAML: write it in quotes"
            ) from error
    return pairs


@contextmanager
def _line_of_progress() -> Iterator[Callable[[str], None]]:
    """One line that changes on a terminal; a line a minute elsewhere."""
    if sys.stderr.isatty():
        with Progress().running() as progress:
            progress("asking the model")
            yield progress
        return
    told = time.monotonic()

    def tell(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= PLAIN_EVERY_S:
            told = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    yield tell


@contextmanager
def _interrupts_go_to_inspect() -> Iterator[None]:
    """While an evaluation runs, Ctrl-C cancels it in order, so that its log is closed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


COMMANDS: dict[str, Any] = {"eval": evaluate, "score": score}
