"""A made-up record with everything a page can show: no model was trained for it."""

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEGAN = 1763164800.0
GIB = 1 << 30
ANSWERS = (
    ("你是誰？", "我是 SmolLM，由 Hugging Face 訓練的助手。", "我是 F# 之神。"),
    ("Who made you?", "I was made by Hugging Face.", "I was made by the F# community."),
    ("What is the capital of France?", "It is Paris.", "It is Paris."),
    ("How do I print <b> in HTML?", "Write &lt;b&gt;.", "You can write &lt;b&gt;."),
)


def event(kind: str, at: float = 0.0, **values: Any) -> dict[str, Any]:
    return {"v": 1, "t": BEGAN + at, "run": "3f2a11bc99d0", "kind": kind, **values}


def write_lines(path: Path, events: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in events)
    path.write_text("".join(lines), encoding="utf-8")


def started(steps: int, first: int = 1, at: float = 0.0) -> dict[str, Any]:
    return event(
        "started", at, steps=steps, first=first, rows=[320, 3200], trained=134515008, tensors=272,
        truncated=3, untaught=0, device="cpu", compute_dtype="float32", version="0.1.0",
        base="ab12", data="cd34", config="ef56", command=["fourge", "train", "run.yaml"],
        folder="/home/me/工作", versions={"python": "3.12.3", "torch": "2.13.0"},
        machine={"system": "Linux", "cores": 20},
    )  # fmt: skip


def step(number: int, of: int, noise: random.Random) -> dict[str, Any]:
    left = math.exp(-3 * number / of)
    return event(
        "step", 3.0 * number, step=number, loss=0.4 + 2 * left + noise.gauss(0, 0.08),
        target_loss=0.3 + 2 * left + noise.gauss(0, 0.08), kl=0.02 * (1 - left),
        kl_weight=1.0 + number / of, lr=2e-5 * (1 + math.cos(math.pi * number / of)) / 2,
        grad_norm=math.exp(noise.gauss(left, 0.3)), moved=0.03 + 0.01 * left,
        codes_changed=0.004 * left, tokens=2048, targets=300, seconds=3.0,
        tokens_per_s=600 + noise.gauss(0, 20),
        peak={"forward": int((2.1 + noise.random() / 20) * GIB),
              "backward": int((2.6 + noise.random() / 10) * GIB)},
    )  # fmt: skip


def gates() -> list[dict[str, Any]]:
    rows = (
        ("identity", 160, 0.0, 0.994, ">= 98%", "pass", ""),
        ("abilities", 80, 0.61, 0.6, ">= base - 5%", "pass", "-1.2% (-4.1% to +1.7%)"),
        ("text", 40, 14.2, 14.31, "<= base + 0.05 nats", "pass", "+0.0077 nats"),
    )
    keys = "name", "items", "base", "tuned", "needed", "decision", "note"
    return [dict(zip(keys, row, strict=True)) for row in rows]


def write_run(folder: Path, steps: int = 40, *, judged: bool = True, lr: float = 2e-5) -> Path:
    """Resumed in the middle, warned once by its guard, exported, judged."""
    noise, half, end = random.Random(1), steps // 2, 3.0 * steps
    events = [
        started(steps),
        event("planned", peak=3 * GIB),
        *(step(at, steps, noise) for at in range(1, half + 1)),
        event("saved", 3.0 * half, step=half, path="checkpoints/step", seconds=1.2),
        event("finished", 3.0 * half, step=half, stopped=15, export=None),
        started(steps, half + 1, 3.0 * half + 1),
        *(step(at, steps, noise) for at in range(half + 1, steps + 1)),
        event("finished", end, step=steps, stopped=0, export=str(folder / "export")),
    ]
    if judged:
        rows = [dict(zip(("prompt", "base", "tuned"), row, strict=True)) for row in ANSWERS]
        events += [event("verdict", end, gates=gates(), failures=[]),
                   event("answers", end, rows=rows)]  # fmt: skip
    write_lines(folder / "events.jsonl", events)
    write_lines(folder / "guard.jsonl", _guard(end))
    (folder / "run.yaml").write_text(
        "model: {path: smollm2-135m}\ndata:\n  mix:\n"
        "  - {path: /data/身份.tsv, weight: 1, learn: answer}\n"
        "  - {path: /data/replay.jsonl, weight: 10, learn: base}\n"
        f"train: {{steps: {steps}}}\noptim: {{lr: {lr}}}\n",
        encoding="utf-8",
    )
    return folder


def _guard(seconds: float) -> list[dict[str, Any]]:
    limits = {"floor": GIB, "limit": 4 * GIB}
    samples = [
        event("sample", at, left_mib=9000 - int(4000 * math.sin(at / 90) ** 2),
              headroom_mib=8000 - int(4000 * math.sin(at / 90) ** 2))
        for at in range(int(seconds))
    ]  # fmt: skip
    warned = event("warned", seconds / 2, reason="1.2 GiB to the line", headroom=GIB, rate=5)
    return [event("start", limits=limits, python="3.12.3"), *samples, warned, event("end", seconds)]
