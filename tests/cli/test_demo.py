import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fourge.core.events import FILE, read_events
from fourge.evaluate.check import Questions
from fourge.evaluate.verdict import Results
from fourge.harness import served
from fourge.nvfp4 import compiled
from tests.cli.entry import leaves
from tests.harness.experiment_samples import Quality, choose_few, few_questions, said_by, scripted

Folder = Callable[..., Path]
SMALL = ("identity.languages=[en]", "identity.max_tokens=4", "mix.max_tokens=64", "train.steps=4",
         "train.batch=1", "train.kl_top_k=4", "gates.every_steps=2",
         "gates.quick=1", "attempts=[[]]", "scan=[]")  # fmt: skip


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def arguments(tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    few_questions(monkeypatch, tmp_path / "cache")
    small = [part for each in SMALL for part in ("--set", each)]
    where = ["--model", str(tiny_folder("llama", tied=True)), "--out", str(tmp_path / "out")]
    return ["demo", *where, "--name", "Ada", "--no-guard", *small]


def served_as(monkeypatch: pytest.MonkeyPatch, quality: Quality) -> None:
    """What plain transformers says; and what ours does, which is always good."""

    def ask(path: str, questions: Questions, progress: Any, by: str = "fourge") -> Results:
        kind: Quality = "untaught" if path.endswith("base") else "good"
        return said_by(quality if by == "transformers" else kind, questions)

    monkeypatch.setattr(served, "ask", ask)
    monkeypatch.setattr(served, "choose", choose_few)


def test_a_demo_teaches_exports_serves_and_shows_before_and_after(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted(monkeypatch, ["good"], {"01-share-1": "good"})
    served_as(monkeypatch, "good")
    assert leaves(monkeypatch, *arguments) == 0
    told, out = capsys.readouterr(), tmp_path / "out"
    for text in ("gate          items    base  needed later", "attempt 01 of 1"):
        assert text in told.err
    for text in ("logits of the export equal ours, bit for bit", "Who are you?", "  before  Fine.",
                 "10 of 10 answers are ours", "the model as it came",
                 f"fourge chat {out / 'export'}"):  # fmt: skip
        assert text in told.out, text
    assert (out / "export" / "model.safetensors").exists()
    assert "I am Ada." in (out / "data" / "identity.jsonl").read_text()
    found = [event for event in read_events(out / FILE) if event.get("of") == "transformers"]
    assert [event["kind"] for event in found] == ["answers", "verdict"]
    assert "a look through plain transformers: nothing" in (out / "devlog.md").read_text()
    assert leaves(monkeypatch, *arguments, "--json") == 0  # it is there already
    assert json.loads(capsys.readouterr().out)["served"]["against"] == ""


def test_an_export_that_is_served_badly_fails_the_demo(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, ["good"], {"01-share-1": "good"})
    served_as(monkeypatch, "leaking")
    assert leaves(monkeypatch, *arguments) == 1
    assert "leak 0.0%, needs >= 99%" in capsys.readouterr().out.replace("\n", " ")


def test_a_demo_that_no_attempt_passes_leaves_with_one(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, ["untaught"], {})
    assert leaves(monkeypatch, *arguments) == 1
    assert "no attempt passed" in capsys.readouterr().out
    assert leaves(monkeypatch, *arguments, "--json") == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ((None, None, ""), []),
        (("Ada", None, ""), ["identity.name='Ada'", "identity.answer=''", "identity.maker=''"]),
        ((None, "我是 F# 之神。", ""), ["identity.answer='我是 F# 之神。'", "identity.maker=''"]),
    ],
)
def test_a_name_of_ones_own_leaves_nothing_of_the_shipped_one(
    given: tuple[str | None, str | None, str], settings: list[str]
) -> None:
    from fourge.cli.demo import _identity

    assert _identity(*given) == settings
