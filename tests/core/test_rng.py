import subprocess
import sys

import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.core import rng

CPU = torch.device("cpu")


def bits(key: rng.Key, start: int, count: int) -> torch.Tensor:
    return rng.element_bits(key.words(CPU), torch.arange(start, start + count))


@given(st.integers(0, 1 << 40), st.integers(1, 200), st.data())
def test_any_chunk_has_the_bits_of_the_whole(start: int, count: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, count))
    key = rng.key(1, 2, "w")
    whole = bits(key, start, count)
    parts = torch.cat([bits(key, start, cut), bits(key, start + cut, count - cut)])
    assert torch.equal(whole, parts)


def test_seed_step_and_tensor_each_select_another_stream() -> None:
    keys = [rng.key(1, 2, "w"), rng.key(2, 2, "w"), rng.key(1, 3, "w"), rng.key(1, 2, "v")]
    streams = {tuple(bits(key, 0, 8).tolist()) for key in keys}
    assert len(streams) == 4


def test_elements_beyond_two_to_the_32_have_bits_of_their_own() -> None:
    key = rng.key(0, 0, "w")
    assert not torch.equal(bits(key, 0, 64), bits(key, 1 << 32, 64))


def test_the_mix_is_a_bijection_on_a_sample() -> None:
    mixed = rng.mix(torch.arange(1 << 18, dtype=torch.int32))
    assert mixed.unique().numel() == 1 << 18


def test_uniform_numbers_are_uniform() -> None:
    value = rng.uniform(bits(rng.key(3, 1, "w"), 0, 1 << 20))
    assert value.min() >= 0
    assert value.max() < 1
    counts = torch.histc(value, 256, 0, 1)
    expected = (1 << 20) / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert 150 < chi_square < 390  # 255 degrees of freedom: mean 255, 6 sigma


def test_neighbours_and_bits_are_uncorrelated() -> None:
    value = bits(rng.key(5, 1, "w"), 0, 1 << 18)
    flags = torch.stack([(value >> i) & 1 for i in range(32)]).float() - 0.5
    assert (flags.mean(dim=1).abs() < 0.005).all()
    assert ((flags[:, 1:] * flags[:, :-1]).mean(dim=1).abs() < 0.0025).all()


def test_another_process_and_thread_count_give_the_same_bits() -> None:
    script = (
        "import torch; torch.set_num_threads(1); from fourge.core import rng\n"
        "k = rng.key(9, 8, 'name').words(torch.device('cpu'))\n"
        "print(rng.element_bits(k, torch.arange(6)).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(bits(rng.key(9, 8, "name"), 0, 6).tolist())
