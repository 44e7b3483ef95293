"""The pictures show what their pages say, by fourge's own code, and are there."""

from pathlib import Path

import pytest

from fourge.evaluate.paired import not_worse
from fourge.guard.policy import Step
from fourge.memory.plan import PHASES
from tests.docs.examples import pages
from tests.docs.links import links
from tests.docs.pictures import (
    gates,
    guard,
    moments,
    nvfp4,
    paper,
    plan,
    release,
    replay,
    stochastic,
)
from tests.docs.pictures.__main__ import FOLDER, PICTURES, main


def test_every_page_shows_its_picture_and_every_picture_has_a_page() -> None:
    shown = {
        page.stem: Path(target).name
        for page in pages()
        for target in links(page.read_text(encoding="utf-8"))
        if "/pictures/" in target
    }
    assert shown == {name: f"{name}.svg" for name in PICTURES}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_bears_no_date(name: str) -> None:
    path = FOLDER / f"{name}.svg"
    assert path.stat().st_size < 150_000
    assert "<dc:date>" not in path.read_text(encoding="utf-8")


def test_drawn_again_a_picture_is_the_same(tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        main(["gates", "guard"], folder)
    for name in ("gates.svg", "guard.svg"):
        one, two = ((tmp_path / each / name).read_bytes() for each in ("one", "two"))
        assert one == two


def test_a_leak_is_warned_and_asked_and_a_burst_is_killed_at_the_line() -> None:
    leak = guard.watched(guard.leak, 30.0)
    assert list(leak.steps) == [Step.CALM, Step.WARNED, Step.ASKED]
    killed = guard.watched(guard.burst, 3.0).steps[Step.KILLED].headroom
    assert killed is not None
    assert 0 <= -killed < 50 * guard.MIB


def test_the_seven_outcomes_have_all_three_endings() -> None:
    endings = [not_worse(case.paired(), gates.MARGIN) for case in gates.CASES]
    assert endings == ["undecided", "pass", "pass", "undecided", "undecided", "fail", "fail"]


@pytest.mark.parametrize("way", plan.WAYS)
def test_the_bars_of_a_phase_sum_to_what_the_plan_says_of_it(way: str) -> None:
    made = plan.planned(way)
    heights = plan.stacked(made)
    for at, phase in enumerate(PHASES):
        assert sum(each[at] for each in heights.values()) * plan.GIB == pytest.approx(
            made.of(phase)
        )
    assert sum(heights[plan.REST]) < 0.15 * sum(made.phases.values()) / plan.GIB


@pytest.mark.model
def test_a_scale_per_block_is_worth_a_factor_of_three() -> None:
    weight_RC = paper.real_weight()
    error = {name: nvfp4.relative(weight_RC, o) for name, o in nvfp4.decoded(weight_RC).items()}
    assert error["four over six"] < error["a scale per 16"] < error["one scale"] / 2.5


@pytest.mark.model
def test_what_is_asked_for_arrives_unless_it_is_rounded_to_nearest() -> None:
    assert stochastic.ours("bf16", 1e-5)[-1] == pytest.approx(stochastic.STEPS, rel=0.1)
    assert stochastic.ours("bf16+8", 1e-5)[-1] == pytest.approx(stochastic.STEPS, rel=0.02)
    assert stochastic.ours("nvfp4", 1e-5)[-1] == pytest.approx(stochastic.STEPS, rel=0.2)
    assert stochastic.nearest(1e-5)[-1] < 0.1 * stochastic.STEPS


@pytest.mark.slow
def test_with_release_a_backward_pass_holds_little_at_any_time() -> None:
    assert max(release.backward_series(release=True)) < max(
        release.backward_series(release=False)
    ) / 5  # fmt: skip


@pytest.mark.slow
@pytest.mark.model
def test_packed_moments_make_the_update_and_an_even_grid_does_not() -> None:
    true = moments.real_moments(texts=2)
    wanted = true.update()
    assert (moments.packed(true).update() - wanted).abs().max() < 0.05
    assert (moments.linear(true).update() - wanted).abs().max() > 100


@pytest.mark.slow
@pytest.mark.model
def test_more_tokens_kept_show_more_of_the_divergence_and_never_too_much() -> None:
    both = replay.pair()
    seen = [replay.kept_divergence(both, top_k) for top_k in (1, 8, replay.DEFAULT, 1024)]
    assert seen == sorted(seen)
    assert (
        0.8 < seen[2] / replay.whole_divergence(both) < seen[3] / replay.whole_divergence(both) < 1
    )
