import pytest
import torch

from fourge.optim.adamw import AdamW
from fourge.optim.part import Part, whole


def test_a_parameter_that_is_here_in_full_begins_at_its_first_value() -> None:
    param = torch.nn.Parameter(torch.ones(4, 6))
    param.grad = torch.zeros(4, 6)
    part = whole(param)
    assert (part.value is param, part.grad is param.grad) == (True, True)
    assert (part.shape, part.first, part.count, part.counts) == ((4, 6), 0, 24, True)


@pytest.mark.parametrize(("master", "moments"), [("bf16", "int8"), ("bf16+8", "nvfp4")])
@pytest.mark.parametrize("cut", [1, 40, 63])
def test_rows_updated_apart_are_the_whole_updated(master: str, moments: str, cut: int) -> None:
    """The noise is that of an element's place in the whole tensor, wherever the cut is."""
    torch.manual_seed(0)
    start, grads = torch.randn(64, 128).bfloat16(), torch.randn(3, 64, 128).bfloat16()

    def updated(rows: slice) -> list[torch.Tensor]:
        here = torch.nn.Parameter(start[rows].clone())
        optimizer = AdamW(
            [("w", here)], lr=1e-3, master=master, moments=moments,  # type: ignore[arg-type]
            part_of=lambda p: Part(p, p.grad, (64, 128), rows.start * 128),
        )  # fmt: skip
        for grad in grads:
            here.grad = grad[rows].clone()
            optimizer.step()
        state = optimizer.state_of(here).values()
        return [here.detach(), *(each for each in state if isinstance(each, torch.Tensor))]

    parts = [updated(slice(0, cut)), updated(slice(cut, 64))]
    for one, two, both in zip(*parts, updated(slice(0, 64)), strict=True):
        assert torch.equal(torch.cat([one, two]), both)
