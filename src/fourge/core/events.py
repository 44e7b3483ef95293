"""The record of a run: an append-only file of typed events, one JSON object a line.

    {"v": 1, "t": 1763164800.123, "run": "3f2a...", "kind": "step", "step": 120, "loss": 1.84, ...}

A line is written with one call and flushed, so a killed run leaves whole lines and at most one
torn one at the end, which ``read_events`` passes over. Whoever shows a run (a page, a table)
reads this file and nothing else.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fourge.core.errors import FormatError
from fourge.core.files import write_errors

VERSION = 1
FILE = "events.jsonl"
RUN_FILE = "run.yaml"  # beside it: every setting of the run, as resolved
EXPORT = "export"  # and what became of the model


class EventLog:
    """Appends events of one run to a file."""

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._mend()

    def write(self, kind: str, **values: Any) -> None:
        event = {"v": VERSION, "t": round(time.time(), 3), "run": self.run, "kind": kind, **values}
        line = json.dumps(event, ensure_ascii=False, allow_nan=False)
        with write_errors(self.path), self.path.open("ab") as file:
            file.write(line.encode() + b"\n")

    def _mend(self) -> None:
        """End a line that a killed writer left torn, so that ours begins on its own."""
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                file.seek(-1, 2)
                whole = file.read(1) == b"\n"
            if not whole:
                with self.path.open("ab") as file:  # appended: another writer's line may be there
                    file.write(b"\n")


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a file, in order; torn lines are passed over.

    Raises:
        FormatError: there is no such file.
    """
    if not path.is_file():
        raise FormatError(f"{path} does not exist.", fix="give the folder of a run")
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if (event := parsed(line)) is not None:
                yield event


def parsed(line: str) -> dict[str, Any] | None:
    """The event of a line; None of one that is torn, or of another version."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and event.get("v") == VERSION else None
