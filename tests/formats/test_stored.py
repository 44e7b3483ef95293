import pytest
import torch

from fourge.core.errors import FormatError
from fourge.formats.stored import (
    KIND_OF,
    KINDS,
    NVFP4,
    bytes_of,
    derived,
    in_memory,
    tensor_from,
)
from fourge.nvfp4.matrix import quantize


def test_a_value_in_memory_says_what_it_is() -> None:
    dense = in_memory(torch.zeros(3, 4, dtype=torch.bfloat16))
    assert (dense.shape, dense.kind, dense.nbytes) == ((3, 4), "bf16", 24)
    matrix = in_memory(quantize(torch.randn(4, 32)))
    assert (matrix.shape, matrix.kind, matrix.nbytes) == ((4, 32), NVFP4, 64 + 8 + 4)


def test_nvfp4_is_not_read_as_dense() -> None:
    with pytest.raises(FormatError, match="NVFP4"):
        in_memory(quantize(torch.randn(1, 16))).dense()


def test_a_derived_tensor_is_made_when_it_is_read() -> None:
    calls = []

    def halve(value: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return (value / 2).to(torch.bfloat16)

    stored = derived(in_memory(torch.ones(4)), "bf16", halve)
    assert (stored.kind, stored.nbytes, calls) == ("bf16", 8, [])
    assert stored.dense().tolist() == [0.5] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_tensors_are_inverse(kind: str) -> None:
    tensor = torch.arange(6).to(KINDS[kind]).view(2, 3)
    data = bytearray(bytes_of(tensor))
    assert len(data) == tensor.nbytes
    again = tensor_from(data, kind, (2, 3))
    assert again.dtype is tensor.dtype
    assert bytes_of(again) == bytes_of(tensor)
    assert KIND_OF[tensor.dtype] == kind


def test_scalars_and_empty_tensors_have_bytes_too() -> None:
    assert bytes(bytes_of(torch.tensor(1.0))) == b"\x00\x00\x80\x3f"
    assert bytes(bytes_of(torch.empty(0, 3))) == b""
    assert tensor_from(bytearray(), "f32", (0, 3)).shape == (0, 3)
    assert bytes(bytes_of(torch.arange(6, dtype=torch.uint8).view(2, 3).t())) == bytes(
        [0, 3, 1, 4, 2, 5]
    )
