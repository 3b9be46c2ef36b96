"""The exported names, the implementations and the page that lists them agree."""

from __future__ import annotations

import fnmatch
import subprocess
from pathlib import Path

from cudahercules.record import library
from cudahercules.record.coverage import updated

PAGE = Path(__file__).parents[2] / "docs/recorder.md"


def test_page_is_current():
    assert PAGE.read_text() == updated(PAGE.read_text()), (
        "run: python -m cudahercules.record.coverage docs/recorder.md"
    )


def exported_by_the_library() -> set[str]:
    path = library.standin() / library.LIBRARY
    listing = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}


def test_every_name_is_exported_and_little_else():
    names = library.exported_symbols()
    assert len(set(names)) == len(names)
    found = {n for n in exported_by_the_library() if not n.startswith("stub_")}
    assert found == set(names) | {"hercules_record", "dlopen"}


def test_implemented_refused_and_unsupported_are_a_partition():
    covered = library.coverage()
    parts = [set(covered.implemented), set(covered.refused), set(covered.unsupported)]
    assert set.union(*parts) == set(library.exported_symbols())
    assert sum(map(len, parts)) == len(library.exported_symbols())


def test_every_stub_has_a_sentence():
    covered = library.coverage()
    assert covered.sentence("cudaMallocManaged") == "cudaMallocManaged: managed memory is not available"
    assert covered.sentence("cudaLogsCurrent") == "unsupported runtime call cudaLogsCurrent"


def test_every_rule_of_refusals_is_used():
    rules = [
        line.split(": ")[0]
        for line in (library.RUNTIME / "refusals.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    refused = library.coverage().refused
    assert [r for r in rules if not any(fnmatch.fnmatchcase(n, r) for n in refused)] == []


def test_error_names_come_from_the_toolkit():
    names = library.error_names(library.find_toolchain().include)
    assert names[0] == "cudaSuccess" and names[1] == "cudaErrorInvalidValue"
    assert names[801] == "cudaErrorNotSupported" and len(names) > 100
