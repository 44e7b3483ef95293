"""Layers with room hold what transformers' own layers hold, and copy seldom."""

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, Cache
from transformers.cache_utils import DynamicLayer

from fourge.chat.room import ROOM, RoomyLayer, roomy_cache


def tokens(count: int, seed: int = 0, rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, count, 4, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-20, 90).filter(bool), max_size=12))
def test_after_any_appending_and_cutting_it_holds_what_a_plain_layer_holds(
    changes: list[int],
) -> None:
    roomy, plain = RoomyLayer(), DynamicLayer()
    for seed, change in enumerate(changes):
        if change > 0:
            new = tokens(change, seed)
            given_back = roomy.update(new, -new), plain.update(new, -new)
            assert all(torch.equal(*pair) for pair in zip(*given_back, strict=True))
        elif plain.get_seq_length() > -change:
            roomy.crop(change)
            plain.crop(change)
        assert roomy.get_seq_length() == plain.get_seq_length()
    if plain.is_initialized:
        assert torch.equal(roomy.keys, plain.keys)
        assert torch.equal(roomy.values, plain.values)


def test_tokens_are_written_in_place_until_the_room_is_used_up() -> None:
    layer, places = RoomyLayer(), list[int]()
    layer.update(tokens(100), tokens(100))
    for seed in range(2 * ROOM + 3):
        layer.update(tokens(1, seed), tokens(1, seed))
        places.append(layer.keys.data_ptr())
    assert sum(one != other for one, other in pairwise(places)) == 1 + 1


def test_a_piece_is_given_no_more_than_it_takes() -> None:
    layer = RoomyLayer()
    for seed in range(3):
        layer.update(tokens(ROOM, seed), tokens(ROOM, seed))
        assert layer.keys.untyped_storage().nbytes() == layer.keys.nbytes


def test_what_was_put_in_its_place_is_appended_to_and_not_written_over() -> None:
    layer = RoomyLayer()
    layer.update(tokens(5), tokens(5))
    other = tokens(3, seed=1)
    layer.keys = layer.values = other
    before = other.clone()
    keys, values = layer.update(tokens(1, seed=2), tokens(1, seed=2))
    assert torch.equal(keys, torch.cat([other, tokens(1, seed=2)], dim=2))
    assert torch.equal(values, keys)
    assert torch.equal(other, before)


def test_fewer_rows_of_its_own_tensor_are_no_longer_its_own() -> None:
    layer = RoomyLayer()
    layer.update(tokens(5), tokens(5))
    layer.keys, layer.values = layer.keys[:1], layer.values[:1]
    keys, _ = layer.update(tokens(1, 2, rows=1), tokens(1, 2, rows=1))
    assert torch.equal(keys, torch.cat([tokens(5)[:1], tokens(1, 2, rows=1)], dim=2))


def test_a_layer_that_begins_with_tokens_appends_behind_them() -> None:
    layer, held = RoomyLayer(), tokens(8)
    layer.hold(held, held.clone(), 6)
    keys, _ = layer.update(tokens(1, 3), tokens(1, 3))
    assert keys.data_ptr() == held.data_ptr()
    assert torch.equal(keys, torch.cat([tokens(8)[:, :, :6], tokens(1, 3)], dim=2))
    shared = tokens(4, rows=1)
    layer.hold(shared.expand(5, -1, -1, -1), shared.expand(5, -1, -1, -1), 4)
    keys, _ = layer.update(tokens(1, 3, rows=5), tokens(1, 3, rows=5))
    assert torch.equal(keys[2:3, :, :4], shared)
    assert torch.equal(shared, tokens(4, rows=1))


def test_a_layer_that_looks_at_a_window_stays_transformers_own() -> None:
    types = ["sliding_attention", "full_attention"]
    config = AutoConfig.for_model("gemma3_text", num_hidden_layers=2, layer_types=types)
    cache = roomy_cache(config)
    assert isinstance(cache, Cache)
    assert [type(layer) is RoomyLayer for layer in cache.layers] == [False, True]
