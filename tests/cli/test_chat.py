import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from fourge.cli import chat_prompt
from fourge.cli.chat import chat
from fourge.core.errors import CheckError, ConfigError, DataError, FormatError, OutputError
from fourge.nvfp4 import compiled
from tests.conftest import byte_tokenizer, tiny_model
from tests.harness.samples import run_of, stopped_after

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def model(tiny_folder: Folder) -> str:
    return str(tiny_folder("qwen3", tied=True))


def run(model: str, *args: str, input: str | bytes = "") -> Result:
    result = CliRunner().invoke(chat, [model, "--max-tokens", "6", *args], input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        return result
    assert result.exit_code == 0, result.output
    return result


def answers(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_several_prompts_are_turns_and_json_is_an_object_each(model: str) -> None:
    one, two = answers(run(model, "--prompt", "hello", "--prompt", "again", "--json"))
    assert (one["turn"], two["turn"]) == (1, 2)
    assert two["reused"] == one["context"] > 0
    assert len(one["ids"]) <= 6
    assert two["prompt"] == "again"


def test_a_prompt_alone_prints_the_reply_alone_and_ids_if_asked(model: str) -> None:
    plain = run(model, "--prompt", "hello", "--show-ids")
    (answer,) = answers(run(model, "--prompt", "hello", "--json"))
    ids = " ".join(map(str, answer["ids"]))
    assert plain.stdout.endswith(f"\nids: {ids}\n")
    assert "[ended by max tokens]" in plain.stderr
    assert "\x1b" not in plain.stdout


def test_lines_from_a_pipe_are_turns_and_commands(model: str, tmp_path: Path) -> None:
    saved = tmp_path / "s.safetensors"
    lines = (
        "one\n\n/stats\ntwo \\\nlines\n/reset\n/system Be kind.\n//slash\n"
        f"/save {saved}\n/help\n/quit\nnever asked\n"
    )
    result = run(model, "--log", str(tmp_path / "log"), input=lines)
    told = result.stderr
    assert "[2 messages, " in told
    assert "/save FILE" in told
    assert saved.exists()
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    turns = [event for event in events if event["kind"] == "turn"]
    assert [turn["prompt"] for turn in turns] == ["one", "two \nlines", "/slash"]
    assert [turn["turn"] for turn in turns] == [1, 2, 3]
    histories = [event["messages"] for event in events if event["kind"] == "history"]
    assert histories == [[], [{"role": "system", "content": "Be kind."}]]


def test_one_ctrl_c_too_many_does_not_end_a_typed_session(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def heed(talk: Any, line: str) -> bool:
        heard.append(line)
        if len(heard) == 1:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(chat_prompt, "heed", heed)
    monkeypatch.setattr(chat_prompt, "typed", lambda tell: iter(["one", "two"]))
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("fourge.cli.chat.sys", terminal)
    run(model)
    assert heard == ["one", "two"]
    heard.clear()
    monkeypatch.undo()
    monkeypatch.setattr(chat_prompt, "heed", heed)
    assert CliRunner().invoke(chat, [model, "--no-log"], input="one\ntwo\n").exit_code != 0
    assert heard == ["one"]


def test_three_quotes_hold_a_question_of_many_lines(model: str) -> None:
    (answer,) = answers(run(model, "--json", input='"""one\ntwo\n\nthree"""\n'))
    assert answer["prompt"] == "one\ntwo\n\nthree"
    (answer,) = answers(run(model, "--json", input='"""\nnever closed\n'))
    assert answer["prompt"] == "never closed"


def test_a_bad_line_is_said_and_the_session_goes_on(model: str) -> None:
    lines = b"one\n\xff\xfe\n/fly\n/save\n/load nothing\nin<|im_end|>side\ntwo\n"
    result = run(model, "--json", input=lines)
    assert [answer["prompt"] for answer in answers(result)] == ["one", "two"]
    assert answers(result)[1]["reused"] > 0
    told = result.stderr
    for words in ("Line 2 of the input is not UTF-8", "no command /fly", "needs the name",
                  "nothing could not be read", "holds '<|im_end|>'"):  # fmt: skip
        assert words in told
    assert isinstance(result.exception, DataError)
    assert "5 of the questions" in str(result.exception)


def test_a_scenario_is_played_and_its_failures_are_the_exit(model: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "system: Be kind.\nturns:\n- {prompt: a, max_tokens: 2, expect: {ended: max tokens}}\n"
        "- {prompt: b, expect: {contains: [impossible], matches: ['^x']}}\n"
        "- {prompt: c, reset: true, max_tokens: 3}\n"
    )
    result = run(model, "--script", str(path), "--json")
    assert isinstance(result.exception, CheckError)
    assert "turn 2: the reply does not contain 'impossible'" in str(result.exception)
    one, two, three = answers(result)
    assert (len(one["ids"]), one["failures"], len(two["failures"])) == (2, [], 2)
    assert (len(three["ids"]), three["reused"]) == (3, 0)
    path.write_text("turns: [{prompt: a, expect: {lacks: [impossible]}}]\n")
    assert "> a\n" in run(model, "--script", str(path)).stdout


def test_a_log_can_be_run_again_and_taken_up(model: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = "one\ntwo\n/system Be kind.\nthree\n"
    sampled = ("--temperature", "1", "--seed", "4")
    first = answers(run(model, "--json", "--log", str(log), *sampled, input=lines))
    again = answers(run(model, "--json", "--no-log", "--replay", f"{log}.jsonl"))
    assert [answer["ids"] for answer in again] == [answer["ids"] for answer in first]
    assert all(answer["same"] for answer in again)
    told = run(model, "--replay", f"{log}.jsonl", "--no-log").stderr
    assert "[3 of 3 replies are those of the log" in told
    taken = run(model, "--load", f"{log}.jsonl", "--no-log", input="/stats\n")
    assert "[3 messages, " in taken.stderr


def test_a_replay_with_other_weights_tells_what_differs(
    model: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    run(model, "--prompt", "one", "--log", str(tmp_path / "log"))
    other = str(tiny_folder("llama"))
    result = run(other, "--replay", str(tmp_path / "log.jsonl"), "--no-log")
    assert "the log has another reply" in result.stderr
    assert "[0 of 1 replies" in result.stderr


def test_a_saved_session_goes_on_where_it_was(model: str, tmp_path: Path) -> None:
    saved = str(tmp_path / "s.safetensors")
    whole = answers(run(model, "--prompt", "one", "--prompt", "two", "--json"))
    run(model, "--prompt", "one", "--save", saved)
    (second,) = answers(run(model, "--prompt", "two", "--load", saved, "--json"))
    assert second["ids"] == whole[1]["ids"]
    assert (second["turn"], second["reused"]) == (2, whole[1]["reused"])
    refused = run(model, "--prompt", "one", "--save", saved)
    assert isinstance(refused.exception, OutputError)
    wrong = run(model, "--path", "packed", "--prompt", "two", "--load", saved)
    assert isinstance(wrong.exception, ConfigError)
    assert "another model" in str(wrong.exception)


def test_ways_of_computing_say_the_same(model: str) -> None:
    prompts = ["--prompt", "one", "--prompt", "two", "--json"]
    plain = [answer["ids"] for answer in answers(run(model, *prompts))]
    for more in (["--no-cache"], ["--piece", "1"]):
        assert [answer["ids"] for answer in answers(run(model, *prompts, *more))] == plain
    packed = [answer["ids"] for answer in answers(run(model, *prompts, "--path", "packed"))]
    train = [answer["ids"] for answer in answers(run(model, *prompts, "--path", "train"))]
    assert packed == train


def test_a_run_in_the_middle_can_be_talked_to(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_can_compile", lambda device: False)
    training = run_of(tmp_path, Path(model))
    stopped_after(training, 2)
    result = run(str(training.out), "--prompt", "hello", "--show-ids")
    assert "step-000002: packed, float32 on cpu]" in result.stderr
    named = run(
        str(training.out / "checkpoints" / "step-000002"), "--prompt", "hello", "--show-ids"
    )
    assert named.stdout == result.stdout


def test_a_window_says_when_it_forgets(model: str) -> None:
    prompts = [word for n in range(6) for word in ("--prompt", f"question {n}")]
    result = run(model, *prompts, "--window", "64")
    assert "[the window of 64 tokens is full: the oldest " in result.stderr


def test_an_fp8_cache_is_smaller(model: str) -> None:
    told = run(model, "--prompt", "one", "--cache", "fp8", "--stats").stderr
    assert "(fp8)]" in told
    assert "said 6" in told


def test_a_time_limit_ends_the_turn_alone(model: str) -> None:
    one, two = answers(
        run(model, "--prompt", "one", "--prompt", "two", "--seconds", "1e-9", "--json")
    )
    assert (one["ended"], one["kept"], two["ended"]) == ("time", False, "time")
    told = run(model, "--prompt", "one", "--seconds", "1e-9").stderr
    assert "[no answer (time); the question is withdrawn]" in told


def test_a_log_is_kept_unless_told_otherwise(model: str, tmp_path: Path) -> None:
    run(model, "--prompt", "one", "--no-log")
    chats = tmp_path / "state" / "fourge" / "chats"
    assert not chats.exists()
    run(model, "--prompt", "one")
    assert sorted(path.suffix for path in chats.iterdir()) == [".jsonl", ".txt"]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["--prompt", " "], ConfigError),
        (["--load", "nothing.safetensors"], FormatError),
        (["--load", "nothing.jsonl"], FormatError),
        (["--script", "nothing.yaml"], ConfigError),
        (["--replay", "nothing.jsonl"], FormatError),
        (["--template", "tokenize=true"], ConfigError),
        (["--window", "5"], ConfigError),
        (["--top-p", "0"], ConfigError),
        (["--stop", "", "--prompt", "x"], ConfigError),
        (["--prompt", "x" * 400], DataError),
    ],
)
def test_what_cannot_be_is_refused(args: list[str], error: type[Exception], model: str) -> None:
    result = run(model, *args)
    assert isinstance(result.exception, error), result.output


def test_a_model_without_a_template_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model("qwen3", dtype=torch.bfloat16).save_pretrained(tmp_path / "m")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path / "m")
    monkeypatch.setattr("fourge.chat.load.load", None)
    result = run(str(tmp_path / "m"), "--prompt", "x")
    assert isinstance(result.exception, DataError)
    assert "no chat template" in str(result.exception)


def test_arguments_reach_the_template(tmp_path: Path) -> None:
    tiny_model("qwen3", dtype=torch.bfloat16).save_pretrained(tmp_path / "m")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% if loud %}LOUD{% endif %}" + tokenizer.chat_template
    tokenizer.save_pretrained(tmp_path / "m")
    fed = [
        answers(run(str(tmp_path / "m"), "--prompt", "x", "--json", *more))[0]["fed"]
        for more in ([], ["--template", "loud=true"])
    ]
    assert fed[1] == fed[0] + 4
