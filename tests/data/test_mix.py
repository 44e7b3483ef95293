import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.errors import ConfigError, DataError, OutputError
from fourge.data.mix import _longest, mix
from fourge.data.records import read_examples


def file_of(folder: Path, name: str, rows: int, answer: str = "yes") -> Path:
    path = folder / name
    path.write_text("".join(f"{name} {row}\t{answer}\n" for row in range(rows)), encoding="utf-8")
    return path


def test_shares_are_as_asked_and_no_row_comes_twice(tmp_path: Path) -> None:
    one, ten = file_of(tmp_path, "one.tsv", 30, "I am Al."), file_of(tmp_path, "ten.tsv", 100)
    mixed = mix([(one, 1), (ten, 10)], tmp_path / "out.jsonl")
    assert mixed.rows == 110
    assert [part.drawn for part in mixed.parts] == [10, 100]
    assert mixed.identity_rows == 10
    prompts = [example.turns[0].content for example in read_examples(mixed.out)]
    assert len(set(prompts)) == len(prompts) == 110
    assert len({prompt.partition(".")[0] for prompt in prompts[-10:]}) == 2


def test_more_rows_repeat_the_smaller_file_and_say_so(tmp_path: Path) -> None:
    one, two = file_of(tmp_path, "one.tsv", 5), file_of(tmp_path, "two.tsv", 50)
    mixed = mix([(one, 1), (two, 1)], tmp_path / "out.jsonl", rows=55)
    assert [part.drawn for part in mixed.parts] in ([27, 28], [28, 27])
    assert mixed.parts[0].rows == 5
    counted = Counter(example.turns[0].content for example in read_examples(mixed.out))
    assert set(counted.values()) == {1, 5, 6}


def test_characters_are_of_the_answers_drawn(tmp_path: Path) -> None:
    one, two = file_of(tmp_path, "a.tsv", 4, "1234"), file_of(tmp_path, "b.tsv", 4, "12")
    mixed = mix([(one, 1), (two, 1)], tmp_path / "out.jsonl")
    assert [part.characters for part in mixed.parts] == [16, 8]
    assert mixed.characters == 24


def test_each_row_says_where_it_came_from_and_inputs_are_untouched(tmp_path: Path) -> None:
    one = file_of(tmp_path, "one.tsv", 3)
    before = one.read_bytes(), one.stat()
    mixed = mix([(one, 1)], tmp_path / "out.jsonl")
    sources = [json.loads(line)["source"] for line in mixed.out.read_text().splitlines()]
    assert sorted(sources) == [f"{one}:{line}" for line in (1, 2, 3)]
    assert (one.read_bytes(), one.stat()) == before


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    one = file_of(tmp_path, "one.tsv", 30)
    texts = []
    for number, seed in enumerate((1, 1, 2)):
        mixed = mix([(one, 1)], tmp_path / f"{number}.jsonl", seed=seed)
        texts.append(mixed.out.read_text())
    assert texts[0] == texts[1] != texts[2]


def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    one = file_of(tmp_path, "one.tsv", 3)
    bad = tmp_path / "bad.tsv"
    bad.write_text("no tab\n")
    out = tmp_path / "out.jsonl"
    with pytest.raises(ConfigError, match="inputs"):
        mix([(one, 1)], one, overwrite=True)
    with pytest.raises(DataError, match="line 1"):
        mix([(one, 1), (bad, 1)], out)
    with pytest.raises(ConfigError):
        mix([(one, 0)], out)
    with pytest.raises(ConfigError):
        mix([(one, 1)], out, rows=0)
    assert not out.exists()
    out.write_text("mine")
    with pytest.raises(OutputError):
        mix([(one, 1)], out)
    assert out.read_text() == "mine"


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 20)), min_size=1, max_size=4),
)
def test_the_longest_mixture_repeats_nothing_and_one_row_more_would(
    files: list[tuple[int, int]],
) -> None:
    counts, weights = [count for count, _ in files], [float(weight) for _, weight in files]
    rows = _longest(counts, weights)
    whole = sum(weights)
    assert all(
        rows * weight / whole <= count + 1e-9 or rows == 1
        for count, weight in zip(counts, weights, strict=True)
    )
    assert any(
        (rows + 1) * weight / whole > count for count, weight in zip(counts, weights, strict=True)
    )
