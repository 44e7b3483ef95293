from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from fourge.core.errors import OutputError
from fourge.data.conversation import Messages
from fourge.evaluate.cache import Kept, cache_folder, model_key, remembered
from fourge.model.build import load_model
from fourge.model.source import open_source
from fourge.model.swap import nvfp4_layers, quantize_
from tests.conftest import byte_tokenizer, tiny_model


def test_what_was_kept_is_there_for_the_same_weights_only(tmp_path: Path) -> None:
    Kept(tmp_path / "new", "a").put({"item": {"text": "字"}, "other": 1.5})
    again = Kept(tmp_path / "new", "a")
    assert again["item"] == {"text": "字"}
    assert again["other"] == 1.5
    assert "unknown" not in again
    assert "item" not in Kept(tmp_path / "new", "b")


def test_later_values_are_added_to_earlier_ones(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "a")
    kept.put({"one": 1})
    kept.put({"two": 2})
    assert kept["one"] == 1
    again = Kept(tmp_path, "a")
    assert (again["one"], again["two"]) == (1, 2)


@pytest.mark.parametrize("torn", ['{"item": "x", "va', "[]", "\x00\x00", '{"item": "x"}', '""'])
def test_a_torn_line_is_passed_over(tmp_path: Path, torn: str) -> None:
    Kept(tmp_path, "a").put({"good": 1})
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(torn)
    again = Kept(tmp_path, "a")
    assert again["good"] == 1
    assert "x" not in again
    again.put({"next": 2})
    assert Kept(tmp_path, "a")["next"] == 2


def test_the_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "fourge" / "scores"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/fourge/scores")


def test_the_key_is_of_weights_their_form_and_the_template() -> None:
    model, tokenizer = tiny_model("qwen3"), byte_tokenizer()
    key = model_key(model, tokenizer)
    assert key == model_key(tiny_model("qwen3"), byte_tokenizer())
    tokenizer.chat_template += " "
    assert model_key(model, tokenizer) != key
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    assert model_key(model, byte_tokenizer()) != key


def test_quantised_layers_and_their_input_scales_are_in_the_key() -> None:
    keys = [model_key(tiny_model("qwen3"), byte_tokenizer())]
    model = tiny_model("qwen3")
    quantize_(model)
    keys.append(model_key(model, byte_tokenizer()))
    layer = next(iter(nvfp4_layers(model).values()))
    layer.scheme = "w4a4"
    keys.append(model_key(model, byte_tokenizer()))
    layer.input_scale = torch.tensor(0.5)
    keys.append(model_key(model, byte_tokenizer()))
    assert len(set(keys)) == 4


def test_a_file_opened_twice_has_one_key(tiny_folder: Callable[..., Path]) -> None:
    source = open_source(tiny_folder("llama"))
    keys = {model_key(load_model(source), source.tokenizer()) for _ in range(2)}
    assert len(keys) == 1


def test_without_a_folder_nothing_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = Kept()
    kept.put({"a": 1})
    assert kept["a"] == 1
    assert "a" not in Kept()
    assert list(tmp_path.iterdir()) == []


def test_remembered_answers_are_asked_once_and_kept_as_they_come(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(conversations: Sequence[Messages]) -> list[str]:
        texts = [each[0]["content"] for each in conversations]
        asked.extend(texts)
        if "fails" in texts:
            raise KeyboardInterrupt
        return [text.upper() for text in texts]

    def conversations(*texts: str) -> list[Messages]:
        return [[{"role": "user", "content": text}] for text in texts]

    told: list[tuple[int, int]] = []
    ask = remembered(answer, Kept(tmp_path, "m"), 8, lambda *each: told.append(each))
    many = [f"{number:03d}" for number in range(136)]
    with pytest.raises(KeyboardInterrupt):
        ask(conversations(*many, "fails"))
    assert told == [(128, 137)]
    again = remembered(answer, Kept(tmp_path, "m"), 8, lambda *each: None)
    asked.clear()
    assert again(conversations("b", *many, "b")) == ["B", *many, "B"]
    assert len(asked) == 9  # the eight that were in flight, and one that is new
    other = remembered(answer, Kept(tmp_path, "m"), 9, lambda *each: None)
    asked.clear()
    other(conversations("b"))
    assert asked == ["b"]  # under another limit


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OutputError, match="could not be written"):
        Kept(tmp_path / "taken", "a").put({"one": 1})
