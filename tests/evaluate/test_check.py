from collections.abc import Callable
from pathlib import Path

import pytest

from fourge import api
from fourge.core.errors import FourgeError
from fourge.evaluate import check as module
from fourge.evaluate.cache import Kept
from fourge.evaluate.check import (
    Questions,
    Server,
    ask,
    ask_loaded,
    check,
    choose,
    narrowed,
    path_of_base,
)
from fourge.evaluate.score import Names
from fourge.evaluate.verdict import Results
from fourge.model.build import load_model
from fourge.model.source import open_source
from tests.conftest import byte_tokenizer, tiny_model

Folder = Callable[..., Path]


def quiet(what: str, done: int, total: int) -> None:
    return


@pytest.fixture
def model(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("fourge.evaluate.perplexity._CHARACTERS", 60)
    return str(tiny_folder("qwen3"))


def test_questions_are_of_the_languages_and_about_a_name_only_if_there_is_one() -> None:
    named = choose(["en"], name="Ada", limit=3)
    assert {probe.set for probe in named.probes} == set(named.versions)
    assert len(named.probes) == 15
    assert len(named.pieces) == 3
    unnamed = choose(["en"], name=None)
    assert {probe.set for probe in unnamed.probes} == {"abilities", "degeneration"}
    assert {probe.language for probe in unnamed.probes} == {"en"}
    assert len(unnamed.pieces) == 32


def test_the_name_stands_where_it_was_said() -> None:
    said = [text for probe in choose(["en"], name="Zork").probes for _, text in probe.turns]
    assert sum("I am Zork." in text for text in said) > 10
    assert not any("{name}" in text for text in said)


def test_answers_are_in_the_order_of_the_probes_and_keep_within_their_limits(model: str) -> None:
    questions = choose(["en"], name="Ada", limit=2)
    told: list[tuple[str, int, int]] = []
    results = ask(model, questions, lambda *each: told.append(each))
    assert len(results.said) == len(questions.probes) == 10
    for probe, said in zip(questions.probes, results.said, strict=True):
        assert said.tokens <= probe.max_tokens
        assert said.stopped or said.tokens == probe.max_tokens
    assert told[0][1:] == (0, 10)
    assert told[-1][1:] == (10, 10)


def test_a_second_check_asks_nothing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = choose(["en"], name="Ada", limit=2)
    first = ask(model, questions, quiet)

    def refuse(model: object, tokenizer: object, conversations: object, limits: object) -> object:
        assert not conversations, "asked again"
        return iter(())

    monkeypatch.setattr(module, "answers_as_they_come", refuse)
    assert ask(model, questions, quiet) == first
    with pytest.raises(AssertionError):
        ask(model, choose(["de"], name="Ada", limit=2), quiet)


def test_other_weights_are_asked_for_themselves(model: str, tmp_path: Path) -> None:
    questions = choose(["en"], name=None, limit=2)
    other = tiny_model("qwen3")
    other.model.norm.weight.data.neg_()
    other.save_pretrained(tmp_path / "other")
    byte_tokenizer().save_pretrained(tmp_path / "other")
    one = ask(model, questions, quiet)
    two = ask(str(tmp_path / "other"), questions, quiet)
    assert one.losses != two.losses


def test_a_model_is_not_worse_than_itself_as_far_as_can_be_told(model: str) -> None:
    questions = choose(["en"], name="Ada", limit=4)
    verdict = check(model, model, questions, Names("F# 之神"), progress=quiet)
    decisions = {gate.name: gate.decision for gate in verdict.gates}
    assert decisions["identity"] == "fail"
    assert decisions["leak"] == decisions["abilities"] == decisions["text"] == "undecided"
    assert not verdict.passed


@pytest.mark.parametrize("served_by", ["fourge", "transformers"])
def test_a_model_that_cannot_be_read_is_refused_before_its_base_is_asked(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served_by: Server
) -> None:
    monkeypatch.delattr(module, "ask")
    with pytest.raises(FourgeError, match="missing"):
        check(str(tmp_path / "missing"), model, choose(["en"], name=None, limit=1), None,
              served_by=served_by, progress=quiet)  # fmt: skip


def test_a_model_in_memory_is_asked_the_same_and_fewer_questions_have_a_part_of_its_answers(
    model: str,
) -> None:
    source = open_source(model)
    loaded = load_model(source)
    many, few = (choose(["en"], name="Ada", limit=limit) for limit in (3, 2))
    results = ask_loaded(loaded, source.tokenizer(), many, Kept(), lambda done, total: None)
    assert results == ask(model, many, quiet)
    assert narrowed(results, many, many) == results
    part = [probe for probe in few.probes if probe in many.probes]
    assert part
    to = Questions(tuple(part), few.pieces, {})
    assert narrowed(results, many, to) == ask(model, to, quiet)


def test_the_base_of_an_nvfp4_model_is_asked_in_nvfp4(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "export"
    api.convert(model, export, "compressed-tensors")
    assert path_of_base(model) == "auto"
    questions = choose(["en"], name=None, limit=2)
    rounded = ask(model, questions, quiet, path=path_of_base(str(export)))
    exported = ask(str(export), questions, quiet)
    assert rounded.said == exported.said
    assert rounded.losses == pytest.approx(exported.losses, rel=1e-6)
    asked: list[str] = []

    def watch(which: str, *args: object, path: str = "auto") -> Results:
        asked.append(path)
        return ask(which, questions, quiet)

    monkeypatch.setattr(module, "ask", watch)
    check(str(export), model, questions, None, progress=quiet)
    assert asked == ["packed", "auto"]
