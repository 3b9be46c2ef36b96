"""The paired protocol against simulated contestants: error control, designs, and the machine's faults."""

from collections import Counter

import numpy as np
import pytest

from cudahercules.judge.design import DESIGNS, choose_design, pause_ms
from cudahercules.judge.paired import RETRIES, InvalidMeasurement, measure, task_figure
from cudahercules.judge.simulated import CountingInspector, SimulatedSides, World
from cudahercules.measure import statistics as st
from cudahercules.replay.interface import ContestantFault


def play(seed=1, expert_us=100.0, ratio=1.0, faults_at=None, **world):
    """One simulated measurement: (measured, world, sides, inspector)."""
    card = World(seed=seed, **world)
    sides = SimulatedSides(card, expert_us, ratio, faults_at)
    inspector = CountingInspector()
    result = measure(sides, inspector, card, lambda n: n, seed, monotonic_ns=card.monotonic_ns)
    return result, card, sides, inspector


def outcomes(trials, **how):
    return Counter(play(seed=k, **how)[0].outcome for k in range(trials))


@pytest.mark.parametrize("expert_us", [20.0, 60.0, 1400.0])
def test_equal_sides_are_rarely_called_different(expert_us):
    """200 A/A runs with a placement effect of 1 %: at most 1 % are called faster or slower."""
    called = outcomes(200, expert_us=expert_us, placement=0.01)
    assert called["faster"] + called["slower"] <= 2


def test_sequence_of_looks_keeps_its_error_at_the_edge_of_the_margin():
    """True ratio exactly 1 + delta, where each look tempts: 'faster' would be wrong there."""
    called = outcomes(200, expert_us=400.0, ratio=1.01, placement=0.01)
    assert called["faster"] <= 2 and called["slower"] == 0


@pytest.mark.parametrize("slowdown", [1.03, 1.05])
def test_planted_slowdowns_are_called_slower(slowdown):
    called = outcomes(60, expert_us=200.0, ratio=1 / slowdown, placement=0.005)
    assert called["slower"] >= 57


def test_planted_one_percent_is_never_called_faster():
    assert outcomes(100, expert_us=200.0, ratio=1 / 1.01, placement=0.01)["faster"] == 0


def test_a_clear_win_ends_at_the_first_look():
    result, _, _, inspector = play(ratio=1.3)
    assert (result.outcome, result.looks, result.samples.instances) == ("faster", 1, 8)
    assert inspector.taken == result.checked == 8 and inspector.judged == 1


def test_drift_and_power_cap_hit_both_sides_and_do_not_decide():
    for world in ({"drift": 0.05}, {"power_w": 4000.0}):
        called = outcomes(40, expert_us=1400.0, placement=0.003, **world)
        assert called["faster"] + called["slower"] == 0


def test_pacing_keeps_a_hungry_kernel_under_the_cap():
    result, card, _, _ = play(expert_us=1400.0, power_w=700.0)
    assert result.pause_ms == pytest.approx(5.0)
    assert card.capped_ns == 0
    assert not any("power cap" in flag for flag in result.flags)


def test_power_cap_is_recorded_and_does_not_void():
    result, card, _, _ = play(expert_us=1400.0, power_w=6000.0)
    assert card.capped_ns > 0
    assert any("power cap" in flag for flag in result.flags)


def test_hot_and_cold_cards_agree():
    cold = World(seed=4, power_w=3000.0, placement=0.002)
    hot = World(seed=4, power_w=3000.0, placement=0.002, heat_w=1500.0)
    said = []
    for card in (cold, hot):
        sides = SimulatedSides(card, 1400.0, 1 / 1.05)
        said.append(measure(sides, CountingInspector(), card, lambda n: n, 1, monotonic_ns=card.monotonic_ns))
    assert [m.outcome for m in said] == ["slower", "slower"]
    assert said[0].estimate.ratio == pytest.approx(said[1].estimate.ratio, rel=0.01)


def test_every_design_checks_at_least_eight_samples_at_its_first_look():
    for design in DESIGNS.values():
        assert design.looks[0] * design.keep >= 8
        assert design.keep <= 2 * design.blocks
        assert sum(design.errors) == pytest.approx(1 - st.LEVEL)
        assert len(design.errors) == len(design.looks)
    assert {d.name: d.kept_at_once for d in DESIGNS.values()} == {
        "light": 16, "heavy": 16, "giant": 8, "slow": 8
    }  # fmt: skip


@pytest.mark.parametrize(
    "candidate_us, expert_us, name",
    [
        (100, 100, "light"),
        (399, 100, "light"),
        (401, 100, "slow"),
        (600, 500, "heavy"),
        (20_000, 19_000, "giant"),
        (100, 1000, "heavy"),
    ],
)
def test_design_follows_the_probe(candidate_us, expert_us, name):
    assert choose_design(candidate_us, expert_us).name == name


def test_pauses_grow_with_the_kernel_up_to_five_milliseconds():
    assert pause_ms(20) == pytest.approx(0.08)
    assert pause_ms(1250) == pytest.approx(5.0)
    assert pause_ms(90_000) == 5.0


def test_a_very_slow_candidate_costs_few_samples():
    result, _, sides, inspector = play(expert_us=100.0, ratio=0.01)
    assert result.design.name == "slow" and result.outcome == "slower"
    assert inspector.taken == 8
    candidates = [s for s in sides.opened if s.side == "candidate"]
    assert sum(s.taken for s in candidates) <= 14


def test_kept_positions_are_secret_but_reproducible():
    def positions(secret):
        card = World(seed=1)
        sides = SimulatedSides(card, 100.0)
        seen = []

        class Recorder(CountingInspector):
            def take(self, contestant, sample):
                seen.append((len(seen), sample.seed))

        measure(sides, Recorder(), card, lambda n: n, secret, monotonic_ns=card.monotonic_ns)
        return seen

    assert positions(1) == positions(1)
    assert positions(1) != positions(2)


def test_pairs_share_their_inputs_and_blocks_are_mirrored():
    order = []
    card = World(seed=1)
    sides = SimulatedSides(card, 100.0, 1.3)
    opened = sides._open

    def spy(side, microseconds):
        contestant = opened(side, microseconds)
        batch = contestant.batch

        def recorded(requests):
            order.extend((side[0], r.seed) for r in requests)
            return batch(requests)

        contestant.batch = recorded
        return contestant

    sides._open = spy
    measure(sides, CountingInspector(), card, lambda n: n, 1, monotonic_ns=card.monotonic_ns)
    start = next(
        k for k in range(len(order)) if [s for s, _ in order[k : k + 8]] == list("ceececce")
    )  # A B B A, B A A B
    first, mirrored = order[start : start + 4], order[start + 4 : start + 8]
    assert first[0][1] == first[1][1] and first[2][1] == first[3][1] != first[0][1]
    assert mirrored[0][1] == mirrored[1][1] and mirrored[2][1] == mirrored[3][1]


def test_a_neighbour_that_slows_the_expert_only_beside_the_candidate_is_seen():
    card = World(seed=1, placement=0.002)
    sides = SimulatedSides(card, 200.0, 1.0)
    recent = []

    def disturb(side, _seconds):
        recent.append(side)
        return 1.3 if side == "expert" and "candidate" in recent[-4:] else 1.0

    card.disturbance = disturb
    with pytest.raises(InvalidMeasurement, match="something disturbs the card"):
        measure(sides, CountingInspector(), card, lambda n: n, 1, monotonic_ns=card.monotonic_ns)


def test_a_thermal_slowdown_repeats_the_block_then_gives_up():
    class Slowing(World):
        def read(self):
            self.slowdown_ns += 1_000_000
            return super().read()

    card = Slowing(seed=1)
    with pytest.raises(InvalidMeasurement, match=f"slowed itself down.*{RETRIES} blocks"):
        measure(
            SimulatedSides(card, 100.0),
            CountingInspector(),
            card,
            lambda n: n,
            1,
            monotonic_ns=card.monotonic_ns,
        )


def test_one_thermal_slowdown_is_repeated_and_counted():
    class Once(World):
        reads = 0

        def read(self):
            self.reads += 1
            if self.reads == 2:
                self.slowdown_ns += 1_000_000
            return super().read()

    card = Once(seed=1)
    inspector = CountingInspector()
    result = measure(
        SimulatedSides(card, 100.0, 1.3), inspector, card, lambda n: n, 1, monotonic_ns=card.monotonic_ns
    )
    assert result.repeated == 1 and result.outcome == "faster" and inspector.taken == 8
    assert "hw_thermal_slowdown" not in result.throttle_ns


def test_an_xid_ends_the_measurement_at_once():
    class Broken(World):
        def read(self):
            self.xids = (79,)
            return super().read()

    card = Broken(seed=1)
    with pytest.raises(InvalidMeasurement, match="Xid 79"):
        measure(
            SimulatedSides(card, 100.0),
            CountingInspector(),
            card,
            lambda n: n,
            1,
            monotonic_ns=card.monotonic_ns,
        )


def test_a_stranger_on_the_card_is_named():
    with pytest.raises(InvalidMeasurement, match="another process uses the GPU"):
        play(strangers=(4711,))


def test_events_that_claim_more_than_the_clock_saw_are_refused():
    card = World(seed=1)
    sides = SimulatedSides(card, 100.0)
    opened = sides._open

    def lying(side, microseconds):
        contestant = opened(side, microseconds)
        batch = contestant.batch
        contestant.batch = lambda requests: [
            s.model_copy(update={"microseconds": s.wall_ns / 1000 * 2}) for s in batch(requests)
        ]
        return contestant

    sides._open = lying
    with pytest.raises(InvalidMeasurement, match="the process's clock saw"):
        measure(sides, CountingInspector(), card, lambda n: n, 1, monotonic_ns=card.monotonic_ns)


@pytest.mark.parametrize("hiccups", [1, 4, 99])
def test_a_host_that_is_held_up_for_a_moment_is_no_disagreement_of_clocks(hiccups):
    """The process's clock sees more than the events in runs of launches; a real difference stays."""
    card = World(seed=1)
    sides = SimulatedSides(card, 100.0)
    opened, left = sides._open, [hiccups]

    def held_up(side, microseconds):
        contestant = opened(side, microseconds)
        batch = contestant.batch

        def late(requests):
            samples = batch(requests)
            if requests[0].repeat > 1 and left[0]:
                left[0] -= 1
                card.pass_time(5000.0, 0.0)
                return [s.model_copy(update={"wall_ns": s.wall_ns + 5_000_000}) for s in samples]
            return samples

        contestant.batch = late
        return contestant

    sides._open = held_up

    def run():
        return measure(
            sides, CountingInspector(), card, lambda n: n, 1, monotonic_ns=card.monotonic_ns
        ).outside_clock["candidate"]

    if hiccups == 1:
        assert run() > 0.95
    else:
        with pytest.raises(InvalidMeasurement, match="by an outside clock"):
            run()


def test_a_contestant_whose_clock_runs_ahead_of_the_judges_is_refused():
    card = World(seed=1)
    with pytest.raises(InvalidMeasurement, match="by the judge's clock"):
        measure(
            SimulatedSides(card, 100.0), CountingInspector(), card, lambda n: n, 1,
            monotonic_ns=lambda: card.now_ns // 2,
        )  # fmt: skip


def test_a_fault_in_the_middle_reaches_the_caller():
    with pytest.raises(ContestantFault, match="simulated fault"):
        play(faults_at=5)


def test_task_figure_over_workloads():
    rows = [play(seed=k, ratio=1.2, placement=0.003)[0] for k in range(3)]
    figure = task_figure(rows, secret=7)
    assert figure.outcome == "faster"
    assert figure.estimate.ratio == pytest.approx(1.2, rel=0.01)


def test_task_figure_of_equal_sides_is_rarely_called():
    wrong = 0
    for k in range(40):
        rows = [play(seed=100 * k + w, placement=0.01)[0] for w in range(3)]
        wrong += task_figure(rows, secret=k).outcome in ("faster", "slower")
    assert wrong <= 1


def test_warm_samples_are_a_secondary_figure():
    result = play()[0]
    assert result.warm_candidate_us < result.candidate_us
    assert result.warm_expert_us < result.expert_us
    assert np.isfinite(result.samples.candidate_us).all()
