"""What the commands share in talking to a terminal: results on stdout, progress on stderr."""

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class _Pipe(Console):
    """Rich leaves with 1 when its reader has gone; that is no failed check."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


out = _Pipe(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")


def listed(text: str) -> list[str]:
    """The items of an option that takes several, as zh-TW,en."""
    return [item for each in text.split(",") if (item := each.strip())]


def echo_json(value: Any) -> None:
    """One JSON document on stdout, from a dataclass or plain data."""
    data = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    click.echo(json.dumps(data, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} has no JSON form")


def calm_libraries() -> None:
    """Before anything heavy is imported: no progress bars or advice of others on the screen."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for name in ("lm_eval", "torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("fourge: %(message)s"))
    handler.addFilter(_Once())
    logger = logging.getLogger("fourge")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)


def others_silent() -> contextlib.redirect_stderr[io.StringIO]:
    """A block in which libraries that insist on progress bars draw them nowhere."""
    return contextlib.redirect_stderr(io.StringIO())


class _Once(logging.Filter):
    """Lets each message through the first time only."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        new = record.getMessage() not in self.seen
        self.seen.add(record.getMessage())
        return new


@contextlib.contextmanager
def counted() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar in a terminal, nothing elsewhere: show(what, done, of how many)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        yield show


@contextlib.contextmanager
def bar(what: str) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """The same for things that come one by one: (set the total, one is done)."""
    with counted() as show:
        count = total = 0

        def started(number: int) -> None:
            nonlocal count, total
            count, total = 0, number
            show(what, 0, total)

        def done(name: str) -> None:
            nonlocal count
            count += 1
            show(what, count, total)

        yield started, done
