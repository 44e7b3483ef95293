from pathlib import Path
from typing import Any

import pytest

from fourge.cli.chat import chat
from fourge.cli.chat_options import Options, state_folder
from fourge.core.errors import ConfigError


def options(*args: str) -> Options:
    given: dict[str, Any] = chat.make_context("chat", ["model", *args]).params
    given.pop("model")
    return Options(**given)


@pytest.mark.parametrize(
    "args",
    [
        ["--prompt", " "],
        ["--prompt", "x", "--script", "y"],
        ["--script", "x", "--replay", "y"],
        ["--log", "x", "--no-log"],
        ["--load", "x", "--system", "y"],
        ["--load", "x", "--replay", "y"],
        ["--load", "x", "--script", "y"],
        ["--system", "x", "--script", "y"],
    ],
)
def test_options_that_contradict_each_other_are_refused(args: list[str]) -> None:
    with pytest.raises(ConfigError):
        options(*args).require_one_way()


def test_options_that_do_not_are_taken() -> None:
    options().require_one_way()
    options("--prompt", "x", "--prompt", "y", "--load", "z", "--log", "l").require_one_way()


def test_arguments_of_the_template_are_read_as_yaml() -> None:
    given = options("--template", "a=true", "--template", "b=x=y", "--template", "c=3")
    assert given.template_arguments() == {"a": True, "b": "x=y", "c": 3}
    for wrong in ("x", "=3", "a b=3", "x={"):
        with pytest.raises(ConfigError, match="--template"):
            options("--template", wrong).template_arguments()


def test_logs_go_where_the_user_keeps_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, two = options().log_stem(), options().log_stem()
    assert one is not None
    assert one.parent == tmp_path / "fourge" / "chats"
    assert one != two
    assert options("--no-log").log_stem() is None
    assert options("--log", "here").log_stem() == Path("here")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert state_folder() == Path.home() / ".local" / "state" / "fourge"
