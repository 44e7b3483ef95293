from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from fourge.core.errors import DivergedError
from fourge.data.batch import Batch
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4 import linear
from fourge.optim.adamw import AdamW
from fourge.optim.schedule import Schedule
from fourge.train.loop import Plan, StepResult, Stopped, steps
from fourge.train.loss import Teacher
from tests.train.samples import batch_of, optimizer_of, prepared, same, values

LENGTHS = [9, 14, 5, 20, 7, 7, 11, 16]


def rows_of(batch: Batch, rows: slice) -> Batch:
    return Batch(batch.token_BT[rows], batch.target_BT[rows], batch.mask_BT[rows],
                 batch.source[rows], batch.rows[rows])  # fmt: skip


def plan_of(count: int = 3, *, micro: int = 1, **settings: Any) -> Plan:
    """Steps of eight rows, in some number of micro-batches."""
    size = len(LENGTHS) // micro

    def batches(step: int) -> list[Batch]:
        whole = batch_of(LENGTHS, seed=step)
        return [rows_of(whole, slice(at, at + size)) for at in range(0, len(LENGTHS), size)]

    return Plan(batches, settings.pop("schedule", Schedule("constant", count)), **settings)


def trained(
    plan: Plan, *, model: dict[str, Any] | None = None, **optim: Any
) -> tuple[dict[str, Tensor], list[StepResult]]:
    network, named = prepared(**(model or {}))
    master = (model or {}).get("master", "bf16")
    results = list(steps(network, optimizer_of(named, master=master, **optim), plan))
    return values(network), results


EXACT: dict[str, Any] = {"master": "fp32", "scheme": "none"}


def test_four_micro_batches_of_two_are_one_batch_of_eight() -> None:
    """Rows differ in their number of targets: each counts as it would in one batch."""
    settings: dict[str, Any] = {"moments": "fp32", "eps": 1e-3, "model": EXACT}
    whole, one = trained(plan_of(release=False), **settings)
    split, four = trained(plan_of(micro=4, release=False), **settings)
    for name in whole:
        torch.testing.assert_close(whole[name], split[name], rtol=1e-4, atol=1e-6, msg=name)
    for a, b in zip(one, four, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
        assert a.target_loss == pytest.approx(b.target_loss, rel=1e-5)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
        assert (a.tokens, a.targets) == (b.tokens, b.targets)


@pytest.mark.parametrize(
    ("model", "moments"),
    [({}, "int8"), ({"master": "bf16+8"}, "nvfp4"), ({"master": "nvfp4"}, "int8"), (EXACT, "fp32")],
)
def test_no_bit_depends_on_release(model: dict[str, Any], moments: str) -> None:
    released, one = trained(plan_of(), model=model, moments=moments, clip=None)
    kept, two = trained(plan_of(release=False), model=model, moments=moments, clip=None)
    assert same(released, kept)
    assert [r.loss for r in one] == [r.loss for r in two]
    assert [r.grad_norm for r in one] == pytest.approx([r.grad_norm for r in two])
    assert [set(r.peak) for r in one] == [{"forward", "backward"}] * 3
    assert [set(r.peak) for r in two] == [{"forward", "backward", "update"}] * 3


def test_clipping_in_two_passes_is_clipping_by_the_global_norm() -> None:
    model = {"family": "llama", "tied": False}  # of a tied weight two gradients are added
    released, one = trained(plan_of(), model=model, clip=0.1, clip_method="two-pass")
    kept, two = trained(plan_of(release=False), model=model, clip=0.1)
    assert same(released, kept)
    assert [r.grad_norm for r in one] == pytest.approx([r.grad_norm for r in two])


def test_the_loss_falls() -> None:
    plan = Plan(lambda step: [batch_of(LENGTHS)], Schedule("constant", 12))
    _, results = trained(plan, lr=3e-3)
    assert results[-1].loss < 0.5 * results[0].loss


def test_the_rate_of_each_group_follows_the_schedule_from_any_step() -> None:
    schedule = Schedule("cosine", 6, warmup=2, final=0.1)
    for first in (1, 4):
        model, named = prepared("qwen3")
        groups = [{"params": named[:3]}, {"params": named[3:], "lr": 1e-4}]
        optimizer = AdamW(groups, lr=1e-3)
        plan = plan_of(schedule=schedule)
        seen = []
        for result in steps(model, optimizer, plan, first=first):
            factor = schedule.factor(result.step)
            assert result.lr == pytest.approx(1e-3 * factor)
            assert optimizer.param_groups[1]["lr"] == pytest.approx(1e-4 * factor)
            seen.append(result.step)
        assert seen == list(range(first, 7))


def test_a_rate_of_zero_moves_nothing_and_a_larger_one_moves_more() -> None:
    before = values(prepared("qwen3", **EXACT)[0])
    exact: dict[str, Any] = {"model": EXACT, "moments": "fp32"}
    still, results = trained(plan_of(1), lr=0.0, **exact)
    assert same(before, still)
    assert results[0].moved == 0
    moved, results = trained(plan_of(1), lr=1e-3, **exact)
    assert results[0].moved > 0.9
    half, _ = trained(plan_of(2, schedule=Schedule("constant", 1, warmup=1)), lr=5e-4, **exact)
    name = "model.layers.0.mlp.up_proj.weight"
    whole = (moved[name] - before[name]).abs().mean()
    assert (half[name] - before[name]).abs().mean() == pytest.approx(whole.item() / 2, rel=1e-3)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_run_that_is_stopped_has_the_weights_of_its_last_step(at: int) -> None:
    """Asked at a micro-step of the second step, which is then as if it had not begun."""
    expected, _ = trained(plan_of(1, micro=4, release=False))
    model, named = prepared("qwen3")
    optimizer = optimizer_of(named)
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 4 + at

    loop = steps(model, optimizer, plan_of(micro=4, release=False), should_stop=should_stop)
    assert next(loop).step == 1
    with pytest.raises(Stopped):
        next(loop)
    assert same(expected, values(model))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_loss_that_is_not_finite_changes_no_weight() -> None:
    model, named = prepared("qwen3")
    with torch.no_grad():
        model.base_model.norm.weight.fill_(3e38)  # finite, until it is multiplied by
    before = values(model)
    with pytest.raises(DivergedError, match="The loss is") as caught:
        list(steps(model, optimizer_of(named), plan_of()))
    assert "a.tsv:1, a.tsv:2" in caught.value.why
    assert same(before, values(model))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_result_says_what_the_step_did() -> None:
    batch = batch_of(LENGTHS, seed=1)
    _, (result, *_) = trained(plan_of(2))
    assert result.step == 1
    assert (result.tokens, result.targets) == (sum(LENGTHS), batch.targets)
    assert result.loss == pytest.approx(result.target_loss)
    assert result.kl is None
    assert result.codes_changed is None  # nothing came before
    assert 0 < result.moved <= 1
    assert result.grad_norm > 0
    assert result.tokens_per_s == pytest.approx(sum(LENGTHS) / result.seconds)
    assert all(peak > 1 << 20 for peak in result.peak.values())


def test_the_share_of_codes_that_changed_is_told_from_the_second_step_on() -> None:
    _, results = trained(plan_of(3), lr=3e-3)
    assert results[0].codes_changed is None
    assert all(0 < (r.codes_changed or 0) < 1 for r in results[1:])
    _, results = trained(plan_of(3), lr=3e-3, model={"master": "nvfp4"})  # changed in place
    assert all(0 < (r.codes_changed or 0) < 1 for r in results[1:])
    _, results = trained(plan_of(3), lr=1e-12)
    assert [r.codes_changed for r in results] == [None, 0.0, 0.0]
    _, results = trained(plan_of(3), model=EXACT, moments="fp32")
    assert [r.codes_changed for r in results] == [None, None, None]


def teacher_for(rows: Sequence[tuple[int, int]]) -> Callable[[Batch], Teacher]:
    """A teacher that is sure of token 5, for some rows."""

    def teach(batch: Batch) -> Teacher:
        counts = (batch.target_BT != -100).sum(1).tolist()
        held = zip(batch.rows, counts, strict=True)
        has = torch.cat([torch.full((count,), row in rows) for row, count in held])
        return Teacher(torch.full((len(has), 1), 5), torch.full((len(has), 1), -0.01), has)

    return teach


@pytest.mark.parametrize("micro", [1, 4])
def test_each_kind_of_position_is_averaged_over_its_own_number_in_the_step(micro: int) -> None:
    held = [(0, 1), (0, 4)]
    settings: dict[str, Any] = {"release": False, "kl_weight": 0.25, "teacher": teacher_for(held)}
    model: dict[str, Any] = {"model": EXACT, "moments": "fp32", "eps": 1e-3}
    weights, (result,) = trained(plan_of(1, micro=micro, **settings), **model)
    reference, (one,) = trained(plan_of(1, **settings), **model)
    assert result.kl is not None
    assert result.target_loss is not None
    assert result.kl > 1
    assert result.loss == pytest.approx(result.target_loss + 0.25 * result.kl, rel=1e-5)
    assert result.targets == batch_of(LENGTHS, seed=1).targets
    assert (result.kl, result.target_loss) == pytest.approx((one.kl, one.target_loss), rel=1e-5)
    for name in weights:
        torch.testing.assert_close(weights[name], reference[name], rtol=1e-4, atol=1e-6, msg=name)


def test_a_step_of_held_rows_alone_has_no_target_loss() -> None:
    everything = [(0, row) for row in range(len(LENGTHS))]
    plan = plan_of(1, kl_weight=0.5, teacher=teacher_for(everything))
    _, (result,) = trained(plan)
    assert result.target_loss is None
    assert result.loss == pytest.approx(0.5 * (result.kl or 0), rel=1e-5)


@pytest.mark.parametrize("recompute", ["block", "light", "none"])
def test_codes_are_made_once_per_step(recompute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not per micro-batch, nor again for the backward pass or the count of what changed."""
    model, named = prepared("qwen3", recompute=recompute)
    made = 0
    quantize = linear.quantize  # type: ignore[attr-defined]

    def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        return quantize(*args, **kwargs)

    monkeypatch.setattr(linear, "quantize", count)
    plan = plan_of(3, micro=2, release=False)
    counts = [made for _ in steps(model, optimizer_of(named), plan)]
    layers = len(nvfp4_layers(model))
    assert counts == [layers, 2 * layers, 3 * layers]
