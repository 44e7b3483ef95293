import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourge.chat.feed import Feed
from fourge.chat.fp8 import decode, encode
from tests.chat.samples import model_for, whole
from tests.conftest import byte_tokenizer

MODEL = model_for(byte_tokenizer())
texts = st.lists(st.integers(0, 255), min_size=2, max_size=40)


@given(exponent=st.integers(-30, 30), seed=st.integers(0, 1000))
def test_a_value_is_off_by_a_sixteenth_of_itself_or_little_of_the_largest(
    exponent: int, seed: int
) -> None:
    noise = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(seed))
    value = noise * 2.0**exponent
    numbers, scale = encode(value)
    back = decode(numbers, scale, torch.float32)
    largest = value.abs().amax(-1, keepdim=True)
    bound = torch.maximum(value.abs() / 16, largest * 2.0**-10 / 448 * 1.001)
    assert ((back - value).abs() <= bound).all()
    assert numbers.dtype == torch.float8_e4m3fn
    assert scale.shape == (2, 3, 5, 1)


def test_zeros_stay_zeros() -> None:
    assert not decode(*encode(torch.zeros(1, 1, 2, 8)), torch.float32).any()


@settings(max_examples=25)
@given(text=texts, size=st.integers(1, 12))
def test_it_does_not_matter_in_which_pieces_a_text_was_fed(text: list[int], size: int) -> None:
    once, pieces = Feed(MODEL, cache="fp8"), Feed(MODEL, cache="fp8", piece=size)
    one, other = once.hold(text), pieces.hold(text)
    assert one is not None
    assert other is not None
    # Far below what the rounding to 8 bits itself does to the logits.
    torch.testing.assert_close(one, other, rtol=0, atol=2e-3)
    for mine, theirs in zip(once.cache.layers, pieces.cache.layers, strict=True):
        assert mine.keys.shape == theirs.keys.shape


def test_its_logits_are_near_those_of_a_plain_cache_and_it_is_much_smaller() -> None:
    text = list(range(40))
    plain, fp8 = Feed(MODEL), Feed(MODEL, cache="fp8", piece=8)
    plain.hold(text)
    logits = fp8.hold(text)
    assert logits is not None
    exact = whole(MODEL, text)[-1]
    assert 0 < (logits - exact).abs().max() < 0.05 * exact.abs().max()
    assert fp8.nbytes == plain.nbytes * (16 + 4) // (16 * 4)


def test_its_end_can_be_cut_off() -> None:
    text = list(range(30))
    feed, fresh = Feed(MODEL, cache="fp8"), Feed(MODEL, cache="fp8")
    feed.hold(text)
    feed.rewind(10)
    assert feed.cache.layers[0].key_scale.shape[-2] == 10
    assert feed.cache.layers[0].value_scale.shape[-2] == 10
    again, once = feed.hold([*text[:10], 7, 8]), fresh.hold([*text[:10], 7, 8])
    assert again is not None
    assert once is not None
    torch.testing.assert_close(again, once, rtol=0, atol=2e-3)


@pytest.mark.parametrize("family", ["gemma3_text", "mistral"])
def test_a_model_with_sliding_layers_sees_no_further_through_it(family: str) -> None:
    model = model_for(byte_tokenizer(), family, sliding_window=6)
    text = list(range(30))
    feed = Feed(model, cache="fp8", piece=5)
    logits = feed.hold(text)
    assert logits is not None
    exact = whole(model, text)[-1]
    assert (logits - exact).abs().max() < 0.05 * exact.abs().max()
