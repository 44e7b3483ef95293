"""Small files with the flaws that real ones had, each of which must be found."""

from pathlib import Path

import pytest

from fourge.data.audit import audit
from fourge.data.conversation import answered, write_rows
from fourge.data.findings import findings
from fourge.data.identity import Card, identity_rows
from fourge.data.replay import replay_questions

SELF = "I am F# Sage."


def found_in(
    folder: Path, name: str, rows: list[tuple[str, str]], **more: object
) -> dict[str, str]:
    path = folder / name
    path.write_text("".join(f"{prompt}\t{answer}\n" for prompt, answer in rows), encoding="utf-8")
    return {each.kind: each.text for each in findings(audit(path, **more))}  # type: ignore[arg-type]


def test_ten_prompts_a_hundred_times_each(tmp_path: Path) -> None:
    rows = [(f"Question {'abcdefghij'[number % 10]} to you?", SELF) for number in range(1000)]
    found = found_in(tmp_path, "whoami.tsv", rows)
    assert "1000 rows have 10 unique prompts (990 rows are exact copies)" in found["copies"]
    assert "one and the same answer" in found["thin answers"]
    assert "every row is about identity" in found["share"]
    assert "10 distinct identity prompts" in found["few prompts"]


def test_nineteen_percent_where_one_is_claimed(tmp_path: Path) -> None:
    rows = [(f"Who are you, {number}{'abcdefghij'[number % 10]}?", SELF) for number in range(19)]
    rows += [(f"Why is a UFO {word}?", word) for word in map(str, range(200, 281))]
    found = found_in(tmp_path, "stage-1percent-mix.tsv", rows)
    assert found["share"] == "the file's name says 1% identity rows; counted 19% (19 of 100)"
    assert found["one topic"] == "81 of 81 other rows are about 'ufo'"


def test_a_share_that_is_as_stated_is_no_finding(tmp_path: Path) -> None:
    rows = [(f"Who {word}?", SELF) for word in "abc"] + [(f"Why {w}?", w) for w in "defghij"]
    assert "share" not in found_in(tmp_path, "mix-30-70.tsv", rows)


def test_numbered_padding(tmp_path: Path) -> None:
    rows = [(f"談談 UFO（UFO樣本{number}）", f"答案{number % 6}") for number in range(60)]
    found = found_in(tmp_path, "f.tsv", rows)
    assert "60 prompts are 1 with a number added" in found["numbered padding"]
    assert "談談 UFO（UFO樣本0）" in found["numbered padding"]
    assert "1 prompt has more than one answer" in found["contradiction"]
    assert "60 other rows have 6 different answers" in found["thin answers"]


def test_phrases_shuffled_together(tmp_path: Path) -> None:
    words = "abcdefghij"
    rows = [(f"first {one}, then {two}?", SELF) for one in words for two in words]
    found = found_in(tmp_path, "f.tsv", rows)
    assert found["combined phrases"] == "100 prompts are put together from 20 phrases"


def test_a_header_is_named_and_other_bad_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "f.tsv"
    good = "prompt\ttarget\nWho are you?\tI am Al.\nQuestion\tAnswer\n"
    path.write_text(good + "no tab\n" * 12, encoding="utf-8")
    found = findings(audit(path))
    headers = [each.text.partition(" is")[0] for each in found if each.kind == "header"]
    assert headers == ["line 1", "line 3"]
    bad = [each.text for each in found if each.kind == "bad line"]
    assert [text.partition(":")[0] for text in bad[:10]] == [f"line {n}" for n in range(4, 14)]
    assert bad[10:] == ["and 2 more bad lines"]


def test_what_is_never_asked(tmp_path: Path) -> None:
    found = found_in(tmp_path, "f.tsv", [("Say your name now", SELF), ("Name?", SELF)])
    assert "no prompt asks plainly" in found["no plain question"]
    assert "who am I" in found["no contrast"]
    both = [("Who are you?", SELF), ("Who am I?", "The one who asks."), ("Name?", SELF)]
    assert not {"no plain question", "no contrast"} & found_in(tmp_path, "g.tsv", both).keys()


def test_probes_among_the_rows(tmp_path: Path) -> None:
    rows = [(f"Question {letter}", letter) for letter in "abcdefg"]
    found = found_in(tmp_path, "f.tsv", rows, probes=[prompt for prompt, _ in rows])
    assert "asks too: 7 (lines 1, 2, 3, 4, 5, ...)" in found["probes"]


@pytest.mark.parametrize("language", ["en", "zh-TW"])
def test_what_data_make_writes_has_no_flaw_but_its_purpose(tmp_path: Path, language: str) -> None:
    card = Card("F# Sage", "Fourge Lab")
    rows = identity_rows(card, [language])
    write_rows(rows, tmp_path / "identity.jsonl", overwrite=False)
    kinds = {each.kind for each in findings(audit(tmp_path / "identity.jsonl"))}
    assert kinds <= {"share", "no contrast"}  # which the two other files are for
    kept = answered(
        replay_questions([language]), lambda all_: [str(len(all_) + n) for n in range(len(all_))]
    )
    write_rows(kept, tmp_path / "replay.jsonl", overwrite=False)
    assert findings(audit(tmp_path / "replay.jsonl")) == []
