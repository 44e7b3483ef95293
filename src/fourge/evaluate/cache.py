"""Answers and losses kept on disk, by the digest of the weights and of the item.

One file of JSON lines per model, appended to as answers come, so that a check that is stopped
goes on where it was. A line that cannot be read (the power failed while it was written) is asked
again. What is kept is the answer and not the score: a rule may change without asking the model.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fourge.core.files import user_cache, write_errors
from fourge.data.conversation import Answer, Messages
from fourge.model.digest import digest_of_weights
from fourge.model.swap import nvfp4_layers

_AT_ONCE = 128


def cache_folder() -> Path:
    """Where they are kept."""
    return user_cache() / "scores"


def model_key(model: Any, tokenizer: Any, served_by: str = "fourge") -> str:
    """All that an answer depends on beside the question: weights, their form, the template."""
    form = {
        name: [layer.scheme, None if layer.input_scale is None else float(layer.input_scale)]
        for name, layer in nvfp4_layers(model).items()
    }
    parts = [digest_of_weights(model), form, tokenizer.chat_template]
    if served_by != "fourge":
        parts.append(served_by)
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class Kept:
    """What is known of one model; without a folder, only as long as this lives."""

    def __init__(self, folder: Path | None = None, key: str = "") -> None:
        self._path = None if folder is None else folder / f"{key}.jsonl"
        self._known: dict[str, Any] = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            row = json.loads(line)
            self._known[row["item"]] = row["value"]
        except (ValueError, TypeError, KeyError):
            return

    def __contains__(self, item: str) -> bool:
        return item in self._known

    def __getitem__(self, item: str) -> Any:
        return self._known[item]

    def put(self, values: dict[str, Any]) -> None:
        """Keep some items at once."""
        self._known.update(values)
        if self._path is None:
            return
        rows = [{"item": item, "value": value} for item, value in values.items()]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        with write_errors(self._path):
            self._append("\n" + "\n".join(lines) + "\n")  # a torn line before it ends here

    def _append(self, text: str) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)


def remembered(
    answer: Answer, kept: Kept, max_tokens: int, progress: Callable[[int, int], None]
) -> Answer:
    """The same answers, kept as they come; what is known is not asked again."""

    def ask(conversations: Sequence[Messages]) -> list[str]:
        items = [_item(each, max_tokens) for each in conversations]
        new = {item: each for item, each in zip(items, conversations, strict=True)
               if item not in kept}  # fmt: skip
        missing = sorted(new, key=lambda item: len(str(new[item])))  # like lengths go together
        for start in range(0, len(missing), _AT_ONCE):
            part = missing[start : start + _AT_ONCE]
            said = answer([new[item] for item in part])
            kept.put(dict(zip(part, said, strict=True)))
            progress(start + len(part), len(missing))
        return [kept[item] for item in items]

    return ask


def _item(conversation: Messages, max_tokens: int) -> str:
    text = json.dumps(["text", conversation, max_tokens], ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
