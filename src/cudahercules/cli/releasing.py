"""``release check`` and ``release freeze``: releases of the suite whose tasks never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cudahercules.cli.common import emit, explained
from cudahercules.cli.grading import Json

if TYPE_CHECKING:
    from cudahercules.suite.freezing import Difference

release = typer.Typer(
    name="release",
    help="Frozen releases of the suite.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@release.callback()
def options() -> None:
    pass


@release.command("check")
@explained
def check(json: Json = False) -> None:
    """Say in which tasks this checkout differs from the newest frozen release. Exit code 1 if in any."""
    from cudahercules.suite.freezing import bundled_tasks, difference
    from cudahercules.task.releases import releases

    frozen = releases()
    if not frozen:
        emit("null" if json else "No release is frozen yet: every task carries dev- and its own hash.")
        return
    found = difference(frozen[-1], bundled_tasks())
    if json:
        emit(found.model_dump_json(indent=1))
    else:
        _print(found)
    raise typer.Exit(1 if found.changed or found.gone else 0)


def _print(found: Difference) -> None:
    from cudahercules.suite.freezing import SECTION

    for what, tasks in (("changed", found.changed), ("gone", found.gone), ("new", found.new)):
        for task in tasks:
            emit(f"{what:<8} {task}")
    emit(
        f"{found.release} ({found.hash[:12]}): {found.same} tasks as frozen, {len(found.changed)} changed, "
        f"{len(found.gone)} gone, {len(found.new)} new"
    )
    if found.changed or found.gone:
        emit(f"Name their families in CHANGELOG.md under '### {SECTION} {found.release}'.")


@release.command("freeze")
@explained
def freeze(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Year and month: 2026.12.")],
) -> None:
    """Freeze the bundled tasks as they are. A release that exists is never overwritten."""
    from cudahercules.suite.freezing import bundled_tasks
    from cudahercules.suite.freezing import freeze as write

    frozen, path = write(name, bundled_tasks())
    emit(f"{path}: {len(frozen.tasks)} tasks, hash {frozen.hash}")
