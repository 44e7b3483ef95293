from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fourge import api
from fourge.checkpoint.source import open_any
from fourge.core.errors import ConfigError, DataError, FormatError
from fourge.evaluate.sides import Side, loaded, must_be_equal, prompt_of, two_sides
from fourge.model.swap import nvfp4_layers
from tests.conftest import byte_tokenizer, tiny_model

Folder = Callable[..., Path]


@pytest.fixture
def model(tiny_folder: Folder) -> str:
    return str(tiny_folder("qwen3"))


@pytest.fixture
def exported(tiny_folder: Folder, tmp_path: Path) -> str:
    api.convert(tiny_folder("qwen3"), tmp_path / "nvfp4", "compressed-tensors")
    return str(tmp_path / "nvfp4")


@pytest.mark.parametrize(
    ("path", "against", "other", "dtypes"),
    [
        ("train", None, "packed", ("float32", "float32")),
        ("packed", None, "train", ("float32", "float32")),
        ("dense", None, "packed", ("float32", "float32")),
        ("train", "dense", "dense", ("float32", "float32")),
        ("train", "bf16", "dense", ("bfloat16", "bfloat16")),
        ("packed", "transformers", "transformers", ("bfloat16", "bfloat16")),
    ],
)
def test_the_sides_are_as_the_table_says(
    model: str, path: str, against: str | None, other: str, dtypes: tuple[str, str]
) -> None:
    one, two = two_sides(model, path, against, device="cpu")
    assert (one.path, two.path, (one.dtype, two.dtype)) == (path, other, dtypes)


def test_a_dtype_that_is_asked_for_is_taken(model: str) -> None:
    one, other = two_sides(model, "train", "bf16", dtype="float32")
    assert (one.dtype, other.dtype) == ("float32", "bfloat16")
    one, other = two_sides(model, "train", "packed", dtype="float16")
    assert (one.dtype, other.dtype) == ("float16", "float16")
    with pytest.raises(ConfigError, match="no float32 form"):
        two_sides(model, "train", "transformers", dtype="float32")


def test_another_model_is_taken_on_its_own_path(model: str, exported: str) -> None:
    assert two_sides(model, "train", exported)[1].path == "packed"
    assert two_sides(exported, "train", model)[1].path == "dense"
    with pytest.raises(FormatError):
        two_sides(model, "train", "nowhere-at-all")


def test_what_was_rounded_away_is_not_there_to_compare_with(exported: str) -> None:
    for against in ("bf16", "dense"):
        with pytest.raises(ConfigError, match="before is not in it"):
            two_sides(exported, "train", against)
    with pytest.raises(ConfigError, match="before is not in it"):
        two_sides(exported, "dense", "packed")


def test_the_masters_of_a_run_are_its_dense_form(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(open_any(model), scheme="w4a16")
    monkeypatch.setattr("fourge.evaluate.sides.open_any", lambda reference: run)
    one, other = two_sides("runs/identity", "train", "dense")
    with loaded(one, "cpu") as train, loaded(other, "cpu") as dense:
        assert nvfp4_layers(train)
        assert not nvfp4_layers(dense)


def test_equal_is_promised_to_one_form_in_one_dtype(model: str) -> None:
    opened = open_any(model)

    def promised(one: str, other: str, dtype: str = "float32") -> bool:
        return must_be_equal(Side(one, opened, one, "float32"), Side(other, opened, other, dtype))

    assert promised("train", "packed")
    assert promised("packed", "transformers")
    assert promised("dense", "dense")
    assert not promised("train", "dense")
    assert not promised("dense", "packed")
    assert not promised("train", "packed", "bfloat16")


def test_a_checkpoint_of_an_export_is_exported_anew(
    exported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = replace(open_any(exported), checkpoint=Path(exported))
    written: list[Path] = []
    monkeypatch.setattr("fourge.evaluate.sides.export", lambda out, path, to: written.append(path))
    monkeypatch.setattr("fourge.evaluate.sides.load_plain", lambda folder, **how: folder)
    with loaded(Side("", opened, "transformers", "bfloat16"), "cpu") as folder:
        assert written == [folder]
    with loaded(Side("", open_any(exported), "transformers", "bfloat16"), "cpu") as folder:
        assert folder == Path(exported)
    assert len(written) == 1


def test_the_prompt_is_what_the_template_writes(model: str) -> None:
    sides = two_sides(model, "train", None)
    tokenizer = byte_tokenizer()
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_of(*sides, "Hi", 4) == tokenizer(text, add_special_tokens=False)["input_ids"]
    with pytest.raises(DataError, match="empty"):
        prompt_of(*sides, " ", 4)


def test_a_prompt_and_what_follows_fit_the_context(model: str) -> None:
    sides = two_sides(model, "train", None)
    length = len(prompt_of(*sides, "Hi", 1))
    assert prompt_of(*sides, "Hi", 256 - length)
    with pytest.raises(DataError, match="room for 256"):
        prompt_of(*sides, "Hi", 257 - length)


def test_a_model_without_a_template_reads_plain_text(
    tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    tiny_model("qwen3").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    plain = two_sides(str(tmp_path), "train", None)
    with caplog.at_level("INFO", "fourge"):
        assert prompt_of(*plain, "Hi", 4) == tokenizer("Hi")["input_ids"]
    assert "no chat template" in caplog.text
    with pytest.raises(ConfigError, match="differently"):
        prompt_of(*two_sides(model, "train", str(tmp_path)), "Hi", 4)
