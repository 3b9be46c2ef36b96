"""Tiers of the suite: what the default tier skips, and the count of it that is printed at the end."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

# One cache for the whole session and for later ones, apart from the user's own.
os.environ.setdefault("HERCULES_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "hercules"))

# A shell that starts the suite in the background lets it ignore Ctrl-C, and all programs that tests interrupt
# with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW = "slow tier: run `make test-slow`"
_GPU = "needs an NVIDIA GPU: run `make test-gpu` on a machine that has one"


@pytest.fixture(autouse=True)
def children_may_start() -> None:
    """A command that ran within this process ended as programs do: nothing might start any more."""
    if "cudahercules.process" in sys.modules:
        sys.modules["cudahercules.process"].allow_children()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests marked slow")
    parser.addoption("--gpu", action="store_true", help="also run tests marked gpu")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not config.getoption("--gpu"):
            item.add_marker(pytest.mark.skip(reason=_GPU))
        elif item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason=_SLOW))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    if not reasons:
        return
    terminalreporter.section("not run")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} test{'s' * (count != 1)} skipped: {reason}")
