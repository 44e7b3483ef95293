from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fourge.chat.feed import Feed, can_cut
from fourge.core.errors import FormatError
from fourge.model.swap import quantize_
from tests.chat.samples import model_for, whole
from tests.conftest import byte_tokenizer

KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "llama": {},
    "gemma3_text": {"sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"]},
    "mistral": {"sliding_window": 7},
}
_models: dict[str, Any] = {}
texts = st.lists(st.integers(0, 255), min_size=2, max_size=48)
cuts = st.lists(st.integers(1, 20), min_size=1, max_size=30)


def model_of(kind: str) -> Any:
    if kind not in _models:
        family = kind.removesuffix("-nvfp4")
        _models[kind] = model_for(byte_tokenizer(), family, **KINDS[family])
        if kind.endswith("-nvfp4"):
            quantize_(_models[kind])
    return _models[kind]


@pytest.mark.parametrize("kind", [*KINDS, "qwen3-nvfp4"])
@settings(max_examples=25)
@given(text=texts, sizes=cuts)
def test_however_a_text_is_cut_every_logit_is_that_of_one_full_pass(
    kind: str, text: list[int], sizes: list[int]
) -> None:
    model = model_of(kind)
    feed = Feed(model)
    parts: list[Tensor] = []
    while len(feed.ids) < len(text):
        start = len(feed.ids)
        size = sizes[len(parts) % len(sizes)]
        parts.append(feed.feed(text[start : start + size], all_logits=True))
    torch.testing.assert_close(torch.cat(parts), whole(model, text), rtol=0, atol=1e-5)
    assert feed.ids == text
    assert feed.cache.get_seq_length() == len(text)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(
    held=st.lists(texts, min_size=1, max_size=4), piece=st.sampled_from([1, 3, 512]), data=st.data()
)
def test_a_cache_made_to_hold_one_text_after_another_gives_the_last_ones_logits(
    kind: str, held: list[list[int]], piece: int, data: st.DataObject
) -> None:
    model = model_of(kind)
    feed = Feed(model, piece=piece)
    for text in held:
        keep = data.draw(st.integers(0, len(feed.ids)))
        wanted = feed.ids[:keep] + text
        logits = feed.hold(wanted)
        assert logits is not None
        torch.testing.assert_close(logits, whole(model, wanted)[-1], rtol=0, atol=1e-5)
        assert feed.ids == wanted
        assert feed.cache.get_seq_length() == len(wanted)


def test_only_what_is_new_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(model_of("qwen3"))
    plain = feed.feed
    fed: list[list[int]] = []

    def watch(ids: list[int]) -> Tensor:
        fed.append(list(ids))
        return plain(ids)

    monkeypatch.setattr(feed, "feed", watch)
    feed.hold([1, 2, 3])
    feed.hold([1, 2, 3, 4, 5])
    feed.hold([1, 2, 9])
    feed.hold([1, 2, 9])
    assert fed == [[1, 2, 3], [4, 5], [9], [9]]


def test_a_window_that_has_moved_on_cannot_be_cut_and_is_fed_again() -> None:
    model = model_of("mistral")
    feed = Feed(model)
    feed.hold([1, 2, 3])
    assert can_cut(feed.cache)
    feed.hold(list(range(20)))
    assert not can_cut(feed.cache)
    feed.rewind(19)
    assert feed.ids == []
    assert feed.cache.get_seq_length() == 0


def test_feeding_can_be_halted_between_pieces_and_goes_on_later() -> None:
    model, answers = model_of("qwen3"), iter([False, False, True])
    feed = Feed(model, piece=4)
    text = list(range(20))
    assert feed.hold(text, lambda: next(answers)) is None
    assert feed.ids == text[:8]
    logits = feed.hold(text)
    assert logits is not None
    torch.testing.assert_close(logits, whole(model, text)[-1], rtol=0, atol=1e-5)


def test_a_pass_that_breaks_leaves_no_layer_ahead_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_for(byte_tokenizer())
    feed = Feed(model)
    feed.hold([1, 2, 3])

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(model.model.layers[1], "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        feed.feed([4])
    monkeypatch.undo()
    assert feed.ids == []
    logits = feed.hold([1, 2, 3, 4])
    assert logits is not None
    torch.testing.assert_close(logits, whole(model, [1, 2, 3, 4])[-1], rtol=0, atol=1e-5)


def test_logits_that_are_not_finite_are_an_error_and_leave_an_empty_cache() -> None:
    model = model_for(byte_tokenizer())
    feed = Feed(model)
    feed.hold([1, 2, 3])
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(FormatError, match="not finite") as caught:
        feed.hold([1, 2, 3, 4])
    assert "model.layers.1.mlp.down_proj" in caught.value.why
    assert feed.ids == []


def test_the_cache_says_what_it_takes() -> None:
    feed = Feed(model_of("qwen3"))
    assert feed.nbytes == 0
    feed.hold([1, 2, 3])
    assert feed.nbytes == 2 * 2 * 2 * 3 * 16 * 4  # layers, k and v, heads, tokens, values, bytes
