from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.errors import ConfigError
from fourge.data.order import PARTS, Mixture, even_permutation, permutation


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    rows = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    shares = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=len(rows), max_size=len(rows))
    weights = draw(st.none() | shares.map(tuple))
    try:
        return Mixture(rows, weights, draw(st.integers(0, 5)), draw(st.booleans()))
    except ConfigError:
        return Mixture(rows, None, draw(st.integers(0, 5)), draw(st.booleans()))


@given(mixtures(), st.integers(0, 5))
def test_each_epoch_asks_each_file_as_often_as_promised(mixture: Mixture, epoch: int) -> None:
    first = epoch * mixture.epoch_size
    drawn = Counter(mixture.draw(first + at)[0] for at in range(mixture.epoch_size))
    assert sum(mixture.draws) == mixture.epoch_size == sum(mixture.rows)
    assert [drawn[file] for file in range(len(mixture.rows))] == list(mixture.draws)
    if mixture.weights is None:
        assert mixture.draws == mixture.rows
    else:
        for count, weight in zip(mixture.draws, mixture.weights, strict=True):
            share = mixture.epoch_size * weight / sum(mixture.weights)
            assert abs(count - share) < 1


@given(mixtures())
def test_no_row_is_drawn_twice_before_every_row_of_its_file_was_drawn(mixture: Mixture) -> None:
    draws = [mixture.draw(index) for index in range(5 * mixture.epoch_size)]
    for file, count in enumerate(mixture.rows):
        rows = [row for of, row in draws if of == file]
        for start in range(0, len(rows), count):
            once = rows[start : start + count]
            assert len(set(once)) == len(once)
            assert set(once) <= set(range(count))
        if not mixture.shuffle:
            assert rows == [at % count for at in range(len(rows))]


@given(mixtures(), st.lists(st.integers(0, 60), min_size=1, max_size=20))
def test_a_draw_does_not_depend_on_the_draws_before_it(mixture: Mixture, order: list[int]) -> None:
    walked = [mixture.draw(index) for index in range(61)]
    fresh = Mixture(mixture.rows, mixture.weights, mixture.seed, mixture.shuffle)
    assert fresh == mixture
    assert [fresh.draw(index) for index in order] == [walked[index] for index in order]


def test_without_weights_an_epoch_is_every_row_once_in_an_order_of_its_own() -> None:
    mixture = Mixture((30, 20), None, seed=1, shuffle=True)
    epochs = [[mixture.draw(e * 50 + at) for at in range(50)] for e in range(3)]
    everything = {(0, row) for row in range(30)} | {(1, row) for row in range(20)}
    assert all(set(epoch) == everything for epoch in epochs)
    for epoch in epochs:
        assert [row for file, row in epoch if file == 0] != list(range(30))
    assert [r for f, r in epochs[0] if f == 0] != [r for f, r in epochs[1] if f == 0]


def test_files_of_one_size_are_not_shuffled_alike_and_a_seed_changes_the_order() -> None:
    def order(seed: int, file: int) -> list[int]:
        mixture = Mixture((40, 40), None, seed, shuffle=True)
        return [row for of, row in map(mixture.draw, range(80)) if of == file]

    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_one_unshuffled_file_is_read_from_top_to_bottom_again_and_again() -> None:
    mixture = Mixture((3,), None, 5, shuffle=False)
    assert [mixture.draw(index) for index in range(7)] == [(0, i % 3) for i in range(7)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_files_are_spread_evenly(shuffle: bool) -> None:
    mixture = Mixture((2, 6), None, 0, shuffle=shuffle)
    assert "".join(str(mixture.draw(index)[0]) for index in range(8)) == "10111011"
    weighted = Mixture((4, 4), (1.0, 3.0), 0, shuffle=shuffle)
    files = [weighted.draw(index)[0] for index in range(8)]
    assert files.count(0) == 2
    assert files[:4].count(0) == files[4:].count(0) == 1
    gap = Mixture((2, 2, 2), (0.0, 1.0, 1.0), 0, shuffle=shuffle)
    assert [gap.draw(index)[0] for index in range(6)] == [1, 2, 1, 2, 1, 2]


def test_a_small_file_with_a_large_share_is_walked_round_and_round() -> None:
    mixture = Mixture((2, 8), (1.0, 1.0), 3, shuffle=True)
    assert mixture.draws == (5, 5)
    rows = [row for file, row in map(mixture.draw, range(20)) if file == 0]
    assert Counter(rows) == {0: 5, 1: 5}


def test_remainders_go_to_the_largest_and_then_to_the_first() -> None:
    assert Mixture((5, 5), (1.0, 2.0)).draws == (3, 7)  # 3.33, 6.67
    assert Mixture((3, 4), (1.0, 1.0)).draws == (4, 3)
    assert Mixture((5, 3, 2), (0.1, 0.2, 0.7)).draws == (1, 2, 7)


def test_a_file_of_weight_zero_is_never_drawn() -> None:
    mixture = Mixture((3, 4), (0.0, 2.0), 1, shuffle=True)
    assert {mixture.draw(index)[0] for index in range(21)} == {1}
    assert {Mixture((3, 4), (2.0, 0.0), 1, shuffle=False).draw(i)[0] for i in range(21)} == {0}


@pytest.mark.parametrize(
    ("rows", "weights", "what"),
    [
        ((), None, "rows"),
        ((3, 0), None, "at least one"),
        ((3, 4), (1.0,), "1 weights are given for 2 files"),
        ((3, 4), (0.0, 0.0), "The weights are"),
        ((3, 4), (2.0, -1.0), "The weights are"),
        ((3, 4), (float("nan"), 1.0), "The weights are"),
        ((3, 4), (float("inf"), 1.0), "The weights are"),
        ((3, 4), (1.0, 1000.0), "File 1 of the mixture would never be drawn"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(
    rows: tuple[int, ...], weights: tuple[float, ...] | None, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        Mixture(rows, weights)


def test_a_draw_before_the_first_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="draw -1"):
        Mixture((3,)).draw(-1)


@given(st.text(max_size=4), st.integers(0, 50))
def test_a_permutation_holds_each_number_once(name: str, count: int) -> None:
    assert sorted(permutation(name, count)) == list(range(count))
    assert sorted(even_permutation(name, count)) == list(range(count))


@given(st.text(max_size=4), st.integers(1, 20))
def test_of_sixteen_draws_each_sixteenth_of_a_file_has_one(name: str, each: int) -> None:
    order = even_permutation(name, each * PARTS)
    for start in range(0, len(order), PARTS):
        assert sorted(row // each for row in order[start : start + PARTS]) == list(range(PARTS))


def test_an_even_order_is_random_within_its_parts_and_among_them() -> None:
    order = even_permutation("a", 10 * PARTS)
    parts = [row // 10 for row in order]
    assert parts[:PARTS] != parts[PARTS : 2 * PARTS]
    assert parts[:PARTS] != sorted(parts[:PARTS])
    assert [row for row in order if row < 10] != list(range(10))


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    mixture = Mixture((3, 4), (1.0, 2.0), 7, shuffle=True)
    assert permutation("7/epoch 0", 8) == [3, 1, 4, 2, 6, 7, 5, 0]
    draws = [(1, 1), (0, 0), (1, 0), (1, 3), (1, 2), (0, 2), (1, 1), (1, 2)]
    assert even_permutation("7", 34)[:8] == [28, 9, 22, 11, 19, 3, 15, 27]
    assert [mixture.draw(index) for index in range(8)] == draws


def test_walking_shuffles_each_pass_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(name: str, count: int) -> list[int]:
        made.append(name)
        return permutation(name, count)

    monkeypatch.setattr("fourge.data.order.permutation", counted)
    mixture = Mixture((5, 20), (1.0, 1.0), 1, shuffle=True)
    for index in range(100):
        mixture.draw(index)
    assert len(made) == len(set(made)) < 25
