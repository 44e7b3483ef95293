import pytest

from fourge.core.errors import PlanError
from fourge.memory.inventory import take_inventory
from fourge.memory.machine import DEFAULT, MIB, Machine
from fourge.memory.plan import PHASES, Line, Plan, plan
from fourge.memory.trace import trace
from fourge.train.teacher import cache_nbytes
from tests.memory.samples import wanted

BARE = Machine(libraries=0, compiler=0, holes=0.0)


def sizes(made: Plan) -> dict[str, int]:
    return {line.part: line.nbytes for line in made.lines}


def test_a_phase_is_the_sum_of_what_is_alive_in_it() -> None:
    lines = (Line("a", 5, "x", ("load", "head")), Line("b", 2, "y", ("head", "backward")))
    made = Plan(lines, 1, "here")
    assert made.phases == {"load": 5, "prepare": 0, "forward": 0, "head": 7, "backward": 2,
                           "update": 0}  # fmt: skip
    assert (made.peak_phase, made.peak) == ("head", 7)


def test_every_phase_has_the_state_and_what_was_traced() -> None:
    asked = wanted(layers=3, tokens=64)
    inventory, traced, made = take_inventory(asked), trace(asked), plan(asked, BARE)
    stays = sum(inventory.total(what) for what in ("master", "residual", "moments"))
    stays += inventory.decoded + inventory.buffers
    codes = inventory.total("codes")
    assert made.of("forward") == stays + codes + traced.forward.total
    assert made.of("head") == stays + codes + traced.head.total
    scratch = inventory.largest("update_scratch")
    backward = traced.blocks.highest(traced.embedding).total
    assert made.of("backward") == stays + codes + backward + scratch
    assert made.of("prepare") == stays - inventory.decoded


def test_without_release_the_update_holds_every_gradient() -> None:
    asked = wanted(layers=3, tokens=64, release=False)
    inventory, traced, made = take_inventory(asked), trace(asked), plan(asked, BARE)
    parts = sizes(made)
    assert parts["gradients"] == inventory.total("gradient")
    assert made.of("update") >= made.of("prepare") + parts["gradients"] + parts["NVFP4 codes"]
    assert made.of("head") == plan(wanted(layers=3, tokens=64), BARE).of("head")
    backward = made.of("backward") - made.of("prepare") - inventory.decoded
    assert backward - parts["NVFP4 codes"] >= traced.blocks.total
    piled = plan(wanted(layers=3, tokens=64, release=False, accumulate=2), BARE)
    assert piled.of("forward") == made.of("forward") + parts["gradients"]


def test_the_parts_are_asked_of_those_that_allocate() -> None:
    parts = sizes(plan(wanted(tokens=64, taught_positions=1000, top_k=8), BARE))
    assert parts["chunk of logits"] == 4 * 64 * 300
    assert parts["teacher cache"] == cache_nbytes(1000, 8)


def test_a_packed_master_is_loaded_as_bf16_first() -> None:
    made = plan(wanted(master="nvfp4"), BARE)
    loaded = next(line for line in made.lines if line.part == "weights as loaded")
    assert loaded.phases == ("load", "prepare")
    master = next(line for line in made.lines if line.part == "master weights")
    assert loaded.nbytes > master.nbytes
    assert "load" not in master.phases


def test_what_the_machine_adds_is_in_the_plan() -> None:
    asked = wanted(tokens=64)
    bare, whole = plan(asked, BARE), plan(asked, DEFAULT)
    assert whole.of("load") - bare.of("load") == DEFAULT.libraries
    assert whole.of("head") - bare.of("head") == DEFAULT.libraries + DEFAULT.compiler
    assert whole.of("backward") > bare.of("backward") + DEFAULT.libraries + DEFAULT.compiler
    on_device = {line.part for line in plan(wanted(device="cuda"), DEFAULT).lines}
    assert "device context" in on_device
    assert not {part for part in on_device if "heap" in part}


def test_no_line_is_empty_and_every_phase_is_known() -> None:
    for line in plan(wanted(), DEFAULT).lines:
        assert line.nbytes > 0
        assert set(line.phases) <= set(PHASES)
        assert line.knob


def test_what_does_not_fit_is_refused_with_its_largest_part() -> None:
    made = Plan((Line("moments", 900 * MIB, "optim.moments", PHASES),
                 Line("codes", 100 * MIB, "model.scheme", ("forward",))), 1, "here")  # fmt: skip
    made.require_fits(1000 * MIB)
    with pytest.raises(PlanError) as caught:
        made.require_fits(1000 * MIB - 1)
    assert caught.value.exit_code == 5
    assert "peak is in forward" in caught.value.why
    assert "moments, 900 MiB" in caught.value.why
    assert "optim.moments" in caught.value.fix
