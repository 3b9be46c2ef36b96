"""Mutations of real PTX: nothing but typed errors and outcomes. The long run: benchmarks/ptx_mutations.py."""

from __future__ import annotations

from collections import Counter

import pytest
from mutation_check import Made, Tally, checked, run
from mutation_judge import grade_mutants
from mutation_kinds import KINDS
from mutation_native import refused_by_compiler, run_together
from mutation_seeds import QUICK, experts, own_kernels, units_of

SEED = 5


@pytest.fixture(scope="module")
def units():
    return units_of(own_kernels(QUICK), SEED, most=40)


def tally_of(units, count: int) -> tuple[Tally, list[Made]]:
    tally, accepted = Tally(), []
    for made, _ in run(units, SEED, count):
        tally.add(made)
        if made.outcome == "accepted":
            accepted.append(made)
    return tally, accepted


def kernels_of_one_target(accepted: list[Made], most: int) -> list[Made]:
    """Mutants that can be one module: kernels with an unchanged header, all the same."""
    same = [m for m in accepted if ".entry" in m.unit.signature and m.mutant[0] == m.unit.header]
    target, _ = Counter(m.unit.header for m in same).most_common(1)[0]
    return [m for m in same if m.unit.header == target][:most]


def test_units_are_ptx_that_the_emulator_takes(units):
    assert len(units) > 60
    assert [(u.seed, checked(u.text())[:2]) for u in units if checked(u.text())[0] != "accepted"] == []


def test_mutants_are_refused_with_a_reason_or_accepted_and_compile(units):
    tally, accepted = tally_of(units, 30 * len(KINDS))
    assert [(m.kind, m.detail) for m in tally.findings] == []
    assert set(tally.outcomes) == set(KINDS)
    total = sum(tally.outcomes.values(), Counter())
    # A mutator that changes nothing, or that writes nothing that can be read, would prove nothing.
    assert all(total[outcome] > 0.1 * total.total() for outcome in ("accepted", "refused", "unreadable"))
    assert [(m.kind, complaint) for m, complaint in refused_by_compiler(accepted[::4])] == []


def test_mutants_run_to_an_outcome(units, tmp_path):
    _, accepted = tally_of(units, 5 * len(KINDS))
    ended = run_together(kernels_of_one_target(accepted, 20), SEED, tmp_path)
    assert [(e.made.kind, e.finding) for e in ended if e.finding] == []
    outcomes = Counter(e.outcome for e in ended)
    assert outcomes["completed"] and any(o.startswith("fault") for o in outcomes), outcomes


def test_what_does_not_compile_is_noticed(units):
    """The compiler's reader sees an error in the middle of many translations."""
    _, accepted = tally_of(units, 2 * len(KINDS))
    broken = accepted[len(accepted) // 2]
    assert broken.translation is not None
    object.__setattr__(
        broken.translation, "source", broken.translation.source.replace("bool carry", "boool c")
    )
    assert [m.number for m, _ in refused_by_compiler(accepted)] == [broken.number]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_mutants_of_everything(tmp_path):
    units = units_of([*own_kernels(), *experts()], SEED)
    tally, accepted = tally_of(units, 500 * len(KINDS))
    assert [(m.kind, m.detail) for m in tally.findings] == []
    assert [(m.kind, complaint) for m, complaint in refused_by_compiler(accepted[::10])] == []
    ended = run_together(kernels_of_one_target(accepted[::20], 100), SEED, tmp_path)
    assert len(ended) > 50
    assert [(e.made.kind, e.finding) for e in ended if e.finding] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_judge_has_a_verdict_on_each_mutant(tmp_path):
    graded = list(grade_mutants(SEED, 16, tmp_path))
    assert [(g.example, g.kind, g.finding) for g in graded if g.finding] == []
    assert len({g.verdict for g in graded}) >= 3
