"""``fourge bench decode``: token after token, against transformers and llama.cpp.

The embedded model. Plain is transformers' ``generate`` on its float32 weights; ours is its NVFP4
export, through the ``Session`` that ``fourge chat`` uses. Each side is a process of its own, and in
every round each does its jobs once, in turn; the first round is not counted. A time is that of the
whole call, the prompt included. Memory is what the process holds once the model is loaded, above
what it held before.

Many at once are compared with some of the same prompts, one after the other: the shorter a reply,
the more of its time is for reading the prompt.

A turn's share: in a chat of three turns, what part of the tokens, and of the time, the third has.
If old turns were computed again, its part of the time would be the larger.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from fourge import api
from fourge.bench.sides import ask, start, stop
from fourge.core.units import size
from fourge.model.embedded import EMBEDDED, embedded_path

PLAIN, SINGLE, ALONE, BATCH = (
    "transformers float32, generate",
    "fourge packed",
    "fourge packed, 32 tokens",
    "fourge packed, 64 x 32 at once",
)
Q4_1, NVFP4 = "llama.cpp, Q4_1", "llama.cpp, our NVFP4 GGUF"


@dataclass(frozen=True, slots=True)
class Speed:
    """One side: the median of its rounds."""

    name: str
    tokens_per_s: float
    bytes: int | None  # of weights; None where it is that of a line above

    def row(self, yardstick: "Speed") -> str:
        ratio = self.tokens_per_s / yardstick.tokens_per_s
        line = f"  {self.name:<32} {self.tokens_per_s:>8.1f} tokens/s {ratio:>6.2f} x"
        if self.bytes is None or not yardstick.bytes:
            return line
        return f"{line} {size(self.bytes):>9} {self.bytes / yardstick.bytes:>5.2f} x"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Everything that was measured."""

    speeds: tuple[Speed, ...]  # the first is the yardstick
    batch_said: float  # many at once over one after the other, once the prompts are read
    turn_tokens: float  # the third turn's part of three
    turn_time: float
    missing: str  # what llama.cpp could not be asked, and why

    def speed(self, name: str) -> float:
        return next(each.tokens_per_s for each in self.speeds if each.name == name)

    @property
    def batch_over_alone(self) -> float:
        return self.speed(BATCH) / self.speed(ALONE)

    @property
    def turn_cost(self) -> float:
        """The third turn's part of the time, over its part of the tokens."""
        return self.turn_time / self.turn_tokens

    def lines(self) -> Iterator[str]:
        yield "The embedded model, one greedy reply of 64 tokens; weights in memory"
        yield from (each.row(self.speeds[0]) for each in self.speeds)
        yield f"64 prompts x 32 tokens at once: {self.batch_over_alone:.2f} x one after the other,"
        yield f"  {self.batch_said:.2f} x without the time for reading the prompts"
        yield (
            f"turn 3 of 3: {self.turn_tokens:.1%} of the tokens, {self.turn_time:.1%} of the time: "
            f"{self.turn_cost:.2f} x its share"
        )
        if self.missing:
            yield self.missing


def measure(rounds: int) -> Decoded:
    """Medians over so many rounds."""
    with tempfile.TemporaryDirectory() as folder:
        sides, missing = _sides(Path(folder))
        try:
            memory = {name: ask(side, "memory")["bytes"] for name, side in sides.items()}
            done = [_round(sides) for _ in range(rounds + 1)][1:]
        finally:
            for side in sides.values():
                stop(side)
    speeds = tuple(Speed(name, _speed(done, name), memory.get(name)) for name in done[0]["single"])
    turns = [median(each["chat"]["seconds"][turn] for each in done) for turn in range(3)]
    tokens = done[0]["chat"]["tokens"]
    said = _speed(done, BATCH, said=True) / _speed(done, ALONE, said=True)
    return Decoded(speeds, said, tokens[2] / sum(tokens), turns[2] / sum(turns), missing)


def _sides(folder: Path) -> tuple[dict[str, "subprocess.Popen[str]"], str]:
    export = folder / "export"
    api.convert(EMBEDDED, export, "compressed-tensors")
    sides = {PLAIN: _side("plain", EMBEDDED), SINGLE: _side("packed", export)}
    if not find_spec("xllamacpp"):
        return sides, "llama.cpp: not installed (pip install xllamacpp)"
    api.convert(EMBEDDED, folder / "nvfp4.gguf", "gguf")
    files = {Q4_1: embedded_path(), NVFP4: folder / "nvfp4.gguf"}
    refused = []
    for name, path in files.items():
        side = _side("llama", path)
        try:
            ask(side, "memory")
            sides[name] = side
        except RuntimeError:  # it ended: this llama.cpp does not read the file
            stop(side)
            refused.append(name)
    return sides, f"could not be loaded: {', '.join(refused)}" if refused else ""


def _side(name: str, model: object) -> "subprocess.Popen[str]":
    return start("fourge.bench.decode_worker", name, model)


def _round(sides: dict[str, "subprocess.Popen[str]"]) -> dict[str, Any]:
    single = {name: ask(side, "single") for name, side in sides.items()}
    single |= {ALONE: ask(sides[SINGLE], "alone"), BATCH: ask(sides[SINGLE], "batch")}
    return {"single": single, "chat": ask(sides[SINGLE], "chat")}


def _speed(rounds: list[dict[str, Any]], name: str, *, said: bool = False) -> float:
    """Tokens per second of the whole call; or of what is said, without reading the prompt."""
    reports = [each["single"][name] for each in rounds]
    seconds = [report["seconds"] - (report["prompt_s"] if said else 0) for report in reports]
    pairs = zip(reports, seconds, strict=True)
    return float(median(report["tokens"] / second for report, second in pairs))
