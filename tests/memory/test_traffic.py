import pytest
import torch

from fourge.core.errors import ConfigError
from fourge.memory.plan import plan
from fourge.memory.traffic import traffic
from fourge.memory.wanted import Wanted
from tests.conftest import tiny_config


def wanted(world_size: int, **settings: object) -> Wanted:
    config = tiny_config("qwen3", tied=True)
    return Wanted(config=config, tokens=16, world_size=world_size, **settings)  # type: ignore[arg-type]


BLOCKS = 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 128 * 64)  # weights of both blocks
ENDS = 300 * 64
VECTORS = 2 * (2 * 64 + 2 * 16) + 64


def test_one_process_sends_nothing() -> None:
    assert traffic(wanted(1)).total == 0


@pytest.mark.parametrize(("device", "times"), [("cuda", 1), ("cpu", 2)])
@pytest.mark.parametrize("size", [2, 4])
def test_what_is_sent_is_the_formula(size: int, device: str, times: int) -> None:
    found, share = traffic(wanted(size, device=device)), (size - 1) / size
    matrices = times * (BLOCKS + ENDS)  # gloo sums all of it on every rank
    assert found.gathered == pytest.approx(share * (2 * BLOCKS * 0.5625 + 2 * ENDS), rel=2e-3)
    assert found.gathered_in_bf16 == pytest.approx(share * (4 * BLOCKS + 2 * ENDS), rel=1e-6)
    assert found.summed == pytest.approx(share * 4 * (matrices + 2 * VECTORS), rel=1e-6)
    assert found.seconds(found.total) == 1.0


def test_codes_are_a_third_of_bf16_and_less() -> None:
    found = traffic(wanted(2))
    ends = ENDS  # both send these in bf16
    assert (found.gathered_in_bf16 - ends) / (found.gathered - ends) == pytest.approx(
        3.556, abs=0.01
    )


def test_every_micro_batch_sends_again() -> None:
    several = traffic(wanted(2, accumulate=3, release=False))
    assert several.total == pytest.approx(3 * traffic(wanted(2)).total, rel=1e-6)


def test_a_plan_of_several_has_their_lines_and_its_own_peak() -> None:
    one, two = plan(wanted(1)), plan(wanted(2))
    assert {"moments, a share", "a block, gathered"} <= {line.part for line in two.lines}
    assert two.weights == one.weights
    assert plan(wanted(2, release=False)).of("update") > two.of("update")


def test_worlds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="A world of 0"):
        wanted(0)
    with pytest.raises(ConfigError, match="master nvfp4"):
        wanted(2, master="nvfp4", compute=torch.float32)
