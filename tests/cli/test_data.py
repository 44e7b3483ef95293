import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fourge.cli.data import data
from fourge.core.errors import ConfigError, DataError, OutputError
from fourge.data.records import read_examples

Folder = Callable[..., Path]


def file_of(folder: Path, name: str, rows: int, answer: str = "yes") -> Path:
    path = folder / name
    path.write_text("".join(f"What is {row}{name}?\t{answer}\n" for row in range(rows)))
    return path


def test_identity_data_is_made_with_a_real_model(tiny_folder: Folder, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_folder("qwen3"), tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    args = ["make", "identity", "--name", "F# 之神", "--languages", "de", "--model",
            str(model), "--out", str(tmp_path / "out"),
            "--max-tokens", "6"]  # fmt: skip
    result = CliRunner().invoke(data, args)
    assert result.exit_code == 0, result.output
    assert "identity answers in the model's own words: 0" in result.stdout
    assert "fourge train" in result.stdout
    assert len(read_examples(tmp_path / "out" / "identity.jsonl")) == 92
    run = (tmp_path / "out" / "run.yaml").read_text()
    assert str(model.resolve()) in run
    again = CliRunner().invoke(data, args)
    assert isinstance(again.exception, OutputError)
    as_json = CliRunner().invoke(data, [*args, "--overwrite", "--json", "--answers", "template"])
    assert json.loads(as_json.stdout)["languages"] == {"de": 92}


def test_what_cannot_be_made_is_refused_before_a_model_is_opened(tmp_path: Path) -> None:
    common = ["make", "identity", "--model", "nowhere", "--out", str(tmp_path / "out")]
    for more in (["--name", "Al", "--languages", "tlh"], ["--name", " "]):
        result = CliRunner().invoke(data, [*common, *more])
        assert isinstance(result.exception, ConfigError)


def test_a_mixture_says_its_shares_as_counted(tmp_path: Path) -> None:
    one, two = file_of(tmp_path, "one.tsv", 10, "I am Al."), file_of(tmp_path, "two.tsv", 40)
    args = ["mix", f"{one}=1", f"{two}=4", "--out", str(tmp_path / "out.jsonl")]
    result = CliRunner().invoke(data, args)
    assert result.exit_code == 0, result.output
    assert "10 of them (20.0%) teach an identity, as counted" in result.stdout
    assert "1.00x" in result.stdout
    assert len(read_examples(tmp_path / "out.jsonl")) == 50
    as_json = CliRunner().invoke(data, [*args, "--overwrite", "--json", "--rows", "5"])
    assert json.loads(as_json.stdout)["rows"] == 5


def test_a_weight_that_is_no_number_is_refused(tmp_path: Path) -> None:
    one = file_of(tmp_path, "one.tsv", 3)
    result = CliRunner().invoke(data, ["mix", f"{one}=many", "--out", str(tmp_path / "o.jsonl")])
    assert result.exit_code == 2
    assert "'many'" in result.output
    plain = CliRunner().invoke(data, ["mix", str(one), "--out", str(tmp_path / "o.jsonl")])
    assert plain.exit_code == 0


def test_an_audit_shows_counts_and_findings_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "mix-1percent.tsv"
    rows = [(f"你是誰（樣本{number}）", "我是 F# 之神") for number in range(10)]
    rows += [("談談UFO", "UFO 是未確認飛行物。"), ("[red]brackets[/red]?", "yes")]
    path.write_text("prompt\ttarget\n" + "".join(f"{one}\t{two}\n" for one, two in rows))
    result = CliRunner().invoke(data, ["audit", str(path)])
    assert result.exit_code == 1
    for text in ("identity rows 10 (83.3%) 'F# 之神'", "line 1 is a header", "says 1%",
                 "10 prompts are 1 with a number added",
                 "`fourge check` asks too: 1 (lines 12)"):  # fmt: skip
        assert text in " ".join(result.stdout.split()), text
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_an_audit_of_good_rows_passes_and_counts_in_tokens(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    path = tmp_path / "good.tsv"
    path.write_text("Name a fruit.\tApple.\nHow high is Everest?\tVery high.\n")
    model = str(tiny_folder("qwen3"))
    result = CliRunner().invoke(data, ["audit", str(path), "--model", model, "--json"])
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)
    assert report["findings"] == []
    assert (report["unit"], report["rows"], report["identity"]["share"]) == ("tokens", 2, 0.0)
    assert report["prompts"]["length"]["longest"] == len("How high is Everest?")  # bytes are tokens


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(data, ["audit", str(tmp_path / "none.tsv")])
    assert isinstance(result.exception, DataError)


@pytest.mark.parametrize("words", [["make"], ["make", "identity"], ["mix"], ["audit"]])
def test_help_fits_80_columns(words: list[str]) -> None:
    result = CliRunner().invoke(data, [*words, "--help"])
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    if words != ["make"]:
        assert "Exit status:" in result.stdout
