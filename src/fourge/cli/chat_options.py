"""The options of ``fourge chat``, in the groups in which they are used."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import yaml  # type: ignore[import-untyped]

from fourge.cli.options import device_option, dtype_option, path_option
from fourge.cli.screen import json_option
from fourge.core.errors import ConfigError

_FILE = click.Path(path_type=Path)
_DECLARED: list[Callable[[Any], Any]] = [
    click.option("--prompt", "prompts", multiple=True, metavar="TEXT",
                 help="Ask this and leave; given again, the next turn."),
    click.option("--script", type=_FILE, help="Ask as a scenario says, and check the replies."),
    click.option("--replay", type=_FILE, metavar="LOG", help="Ask again what a log holds."),
    click.option("--load", type=_FILE, help="Go on with a saved session, or with a log."),
    click.option("--save", type=_FILE, help="Save the session at the end."),
    click.option("--system", metavar="TEXT", help="Begin with this system text."),
    click.option("--max-tokens", default=512, show_default=True, help="The most of one reply."),
    click.option("--seconds", type=float, help="Time for one turn; it ends the turn alone."),
    click.option("--stop", "stops", multiple=True, metavar="TEXT",
                 help="End the reply before this text; may be repeated."),
    click.option("--temperature", default=0.0, show_default=True,
                 help="How much chance; 0: none, the likeliest."),
    click.option("--top-k", default=0, show_default=True,
                 help="Only so many of the likeliest; 0: all."),
    click.option("--top-p", default=1.0, show_default=True,
                 help="Only the likeliest, up to this probability in sum; 1: all."),
    click.option("--min-p", default=0.0, show_default=True,
                 help="Only those at least so likely, relative to the likeliest; 0: all."),
    click.option("--repetition-penalty", default=1.0, show_default=True,
                 help="Above 1: what was said becomes less likely."),
    click.option("--seed", default=0, show_default=True, help="Of the random choices."),
    path_option, device_option, dtype_option,
    click.option("--cache", default="plain", show_default=True,
                 type=click.Choice(("plain", "fp8")), help="How keys and values are kept."),
    click.option("--no-cache", is_flag=True, help="Feed everything anew each turn, to compare."),
    click.option("--window", type=int, metavar="TOKENS",
                 help="Forget the oldest turns when the conversation outgrows this."),
    click.option("--piece", default=512, show_default=True, type=click.IntRange(min=1),
                 help="Tokens fed at once; 1: one by one."),
    click.option("--template", "template", multiple=True, metavar="NAME=VALUE",
                 help="An argument of the chat template, as enable_thinking=false."),
    click.option("--show-ids", is_flag=True, help="Print the tokens' numbers too."),
    click.option("--stats", is_flag=True, help="Say after each turn what it cost."),
    click.option("--log", type=_FILE, metavar="NAME",
                 help="Log to NAME.jsonl and NAME.txt.  [default: under ~/.local/state]"),
    click.option("--no-log", is_flag=True, help="Keep no log."),
    click.option("--overwrite", is_flag=True, help="Let --save and /save replace a file."),
    json_option,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line."""

    prompts: tuple[str, ...]
    script: Path | None
    replay: Path | None
    load: Path | None
    save: Path | None
    system: str | None
    max_tokens: int
    seconds: float | None
    stops: tuple[str, ...]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    path: str
    device: str
    dtype: str
    cache: Any
    no_cache: bool
    window: int | None
    piece: int
    template: tuple[str, ...]
    show_ids: bool
    stats: bool
    log: Path | None
    no_log: bool
    overwrite: bool
    as_json: bool

    def require_one_way(self) -> None:
        """Raise for options that contradict each other."""
        ways = [("--prompt", self.prompts), ("--script", self.script), ("--replay", self.replay)]
        given = [name for name, value in ways if value]
        if len(given) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} do not go together.")
        if any(not prompt.strip() for prompt in self.prompts):
            raise ConfigError("The prompt is empty.", fix="say something")
        begun_by = [("--load", self.load), ("--replay", self.replay), ("--script", self.script),
                    ("--system", self.system)]  # fmt: skip
        given = [name for name, value in begun_by if value]
        if len(given) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} do not go together.",
                              why="both say how the conversation begins")  # fmt: skip
        if self.log and self.no_log:
            raise ConfigError("--log and --no-log do not go together.")

    def template_arguments(self) -> dict[str, Any]:
        """The arguments of the template, their values read as YAML."""
        found = {}
        for each in self.template:
            name, equals, text = each.partition("=")
            if not equals or not name.isidentifier():
                raise ConfigError(f"--template {each} is not NAME=VALUE.")
            try:
                found[name] = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ConfigError(f"--template {each} has no value that YAML knows.") from error
        return found

    def log_stem(self) -> Path | None:
        """Where the log goes, without its endings; None for none."""
        if self.no_log:
            return None
        if self.log:
            return self.log
        return state_folder() / "chats" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid4().hex[:6]}"


def state_folder() -> Path:
    """Where this user's programs keep logs and histories."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given else Path.home() / ".local" / "state") / "fourge"


def chat_options(command: Any) -> Any:
    """All of them, in the order of the list."""
    for declare in reversed(_DECLARED):
        command = declare(command)
    return command
