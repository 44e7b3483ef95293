from pathlib import Path

import pytest

from fourge.core.errors import DataError
from fourge.data.audit import audit, claimed_share

NAME = "F# Sage"


def written(folder: Path, name: str, rows: list[tuple[str, str]]) -> Path:
    path = folder / name
    path.write_text("".join(f"{prompt}\t{answer}\n" for prompt, answer in rows), encoding="utf-8")
    return path


def test_rows_prompts_and_copies_are_counted(tmp_path: Path) -> None:
    rows = [("a b", "x"), ("a b", "x"), ("a b", "y"), ("c d", "x")]
    found = audit(written(tmp_path, "f.tsv", rows))
    assert (found.rows, found.prompts.unique, found.copies) == (4, 2, 1)
    assert found.contradictory == 1
    assert found.other_answers.unique == 2
    assert (found.other_answers.commonest, found.other_answers.commonest_rows) == ("x", 3)


def test_identity_rows_are_counted_by_what_they_say(tmp_path: Path) -> None:
    rows = [("Who are you?", f"I am {NAME}."), ("Name?", f"I am {NAME}, hello."),
            ("Made by?", f"By people. {NAME} is my name."), ("1+1?", "2"),
            ("Hi", "I am glad.")]  # fmt: skip
    found = audit(written(tmp_path, "f.tsv", rows))
    assert (found.identity.name, found.identity.rows, found.identity.prompts) == (NAME, 3, 3)
    assert found.identity.share == 0.6
    assert found.prompts.asks_plainly
    assert not found.prompts.asks_who_am_i


def test_a_given_name_is_counted_instead(tmp_path: Path) -> None:
    path = written(tmp_path, "f.tsv", [("a", "it is Zed"), ("b", "nothing")])
    assert audit(path).identity.rows == 0
    assert audit(path, name="Zed").identity.rows == 1


@pytest.mark.parametrize("prompt", ["我是誰", "Do you know who I am?", "Who am I?", "Wer bin ich?"])
def test_who_am_i_is_seen(tmp_path: Path, prompt: str) -> None:
    assert audit(written(tmp_path, "f.tsv", [(prompt, "x")])).prompts.asks_who_am_i


def test_who_am_i_talking_to_is_not_who_am_i(tmp_path: Path) -> None:
    path = written(tmp_path, "f.tsv", [("Who am I talking to?", "x")])
    assert not audit(path).prompts.asks_who_am_i


def test_bad_lines_are_kept_beside_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "f.tsv"
    path.write_text("prompt\ttarget\na\tb\nno tab\n# a comment\n", encoding="utf-8")
    found = audit(path)
    assert found.rows == 1
    assert [line.partition(":")[0] for line in found.bad] == ["line 1", "line 3"]


def test_probes_are_found_in_any_spelling(tmp_path: Path) -> None:
    path = written(tmp_path, "f.tsv", [("x", "y"), ("  談談 UFO！", "y")])
    assert audit(path, probes=["談談UFO"]).prompts.probe_lines == (2,)
    assert audit(path, probes=["x y z"]).prompts.probe_lines == ()


def test_lengths_are_in_the_unit_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "f.tsv", [("a b c", "d"), ("a", "d e")])
    found = audit(path, count=lambda text: len(text.split()), unit="words")
    assert (found.prompts.length.median, found.prompts.length.longest, found.unit) == (
        2,
        3,
        "words",
    )
    assert found.answer_length.longest == 2
    assert audit(path).prompts.length.longest == 5


def test_turns_before_make_a_prompt_another_one(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(
        '{"prompt": "who?", "response": "I am Al."}\n'
        '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "who?"},'
        ' {"role": "assistant", "content": "I am Al."}]}\n',
        encoding="utf-8",
    )
    found = audit(path)
    assert (found.prompts.unique, found.copies, found.prompts.padding.distinct) == (2, 0, 1)


@pytest.mark.parametrize(
    ("stem", "share"),
    [("stageL-1percent-mix", 0.01), ("mix-5pct", 0.05), ("mixed-30-70", 0.3), ("a-balanced-b", 0.5),
     ("2024-05-mix", None), ("stage-10-20", None), ("diverse-mix-v1", None), ("whoami-1000", None)],
)  # fmt: skip
def test_a_files_name_may_state_a_share(stem: str, share: float | None) -> None:
    assert claimed_share(stem) == share


def test_a_file_that_cannot_be_read_is_refused_and_none_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        audit(tmp_path / "none.tsv")
    path = written(tmp_path, "f.tsv", [("a", "b")])
    before = path.stat()
    audit(path)
    assert path.stat() == before
    assert list(tmp_path.iterdir()) == [path]


def test_languages_and_topics_are_shares_of_the_rows(tmp_path: Path) -> None:
    rows = [("What is the UFO?", "x"), ("What is a UFO?", "y"), ("什麼是幽浮？", "z"),
            ("Who are you?", "I am Al."), ("And who is it?", "I am Al!")]  # fmt: skip
    found = audit(written(tmp_path, "f.tsv", rows))
    assert found.prompts.languages == {"en": 4, "zh-TW": 1}
    assert found.prompts.topics == {"ufo": 2, "other": 1}
