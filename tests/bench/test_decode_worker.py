import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from fourge.bench import decode_worker
from tests.chat.samples import SMOLLM2
from tests.conftest import byte_tokenizer


@pytest.fixture
def folder(
    tiny_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A small model that never stops by itself, or hardly."""
    path = tmp_path / "model"
    path.mkdir()
    for file in tiny_folder("llama").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = SMOLLM2
    tokenizer.save_pretrained(path)
    for name, value in {"TOKENS": 6, "PROMPTS": 3, "BATCH_TOKENS": 4, "TURN_TOKENS": 3}.items():
        monkeypatch.setattr(decode_worker, name, value)
    monkeypatch.setattr(decode_worker, "QUESTION", "A {}?")  # there is room for 256 tokens
    return str(path)


def test_prompts_are_many_and_differ() -> None:
    assert len(set(decode_worker.prompts())) == decode_worker.PROMPTS == 64


def test_both_sides_say_as_many_tokens_as_are_asked_for(folder: str) -> None:
    plain, packed = decode_worker.plain(folder), decode_worker.packed(folder)
    for jobs in (plain, packed):
        report = jobs["single"]()
        assert 0 < report["tokens"] <= 6
        assert report["seconds"] > 0
    assert 0 < packed["batch"]()["tokens"] <= 12
    alone = packed["alone"]()
    assert 0 < alone["tokens"] <= 12
    assert 0 < alone["prompt_s"] < alone["seconds"]


def test_a_chat_has_three_turns_of_new_tokens_alone(folder: str) -> None:
    report = decode_worker.packed(folder)["chat"]()
    assert len(report["seconds"]) == len(report["tokens"]) == 3
    assert max(report["tokens"]) < 2 * min(report["tokens"])


def test_a_line_is_a_job(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["worker", "packed", folder])
    monkeypatch.setattr(sys, "stdin", io.StringIO("memory\nsingle\n"))
    decode_worker.main()
    memory, single = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert isinstance(memory["bytes"], int)
    assert single["tokens"] > 0


def test_llama_is_given_the_same_text_and_says_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Server:
        def __init__(self, params: Any) -> None:
            asked.append(params)

        def handle_chat_completions(self, request: dict[str, Any]) -> dict[str, Any]:
            asked.append(request)
            return {"usage": {"completion_tokens": request["max_tokens"]}}

    def params() -> SimpleNamespace:
        parts = ("model", "cpuparams", "cpuparams_batch")
        return SimpleNamespace(**{part: SimpleNamespace() for part in parts})

    module = ModuleType("xllamacpp")
    module.Server, module.CommonParams = Server, params  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    assert decode_worker.llama("model.gguf")["single"]()["tokens"] == decode_worker.TOKENS
    told, request = asked
    assert told.model.path == "model.gguf"
    assert told.cpuparams.n_threads == told.cpuparams_batch.n_threads == torch.get_num_threads()
    assert request["messages"] == [{"role": "user", "content": decode_worker.prompts()[0]}]
    assert request["temperature"] == 0
    assert not request["cache_prompt"]  # every round reads the prompt
