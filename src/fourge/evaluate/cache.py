"""Answers and losses kept on disk, by the digest of the weights and of the item.

One file of JSON lines per model, appended to as answers come, so that a check that is stopped
goes on where it was. A line that cannot be read (the power failed while it was written) is asked
again. What is kept is the answer and not the score: a rule may change without asking the model.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fourge.core.files import user_cache
from fourge.model.digest import digest_of_weights
from fourge.model.swap import nvfp4_layers


def cache_folder() -> Path:
    """Where they are kept."""
    return user_cache() / "scores"


def model_key(model: Any, tokenizer: Any) -> str:
    """All that an answer depends on beside the question: weights, their form, the template."""
    form = {
        name: [layer.scheme, None if layer.input_scale is None else float(layer.input_scale)]
        for name, layer in nvfp4_layers(model).items()
    }
    parts = [digest_of_weights(model), form, tokenizer.chat_template]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


class Kept:
    """What is known of one model."""

    def __init__(self, folder: Path, key: str) -> None:
        self._path = folder / f"{key}.jsonl"
        self._known: dict[str, Any] = {}
        if self._path.exists():
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
        rows = [{"item": item, "value": value} for item, value in values.items()]
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + "\n".join(lines) + "\n")  # a torn line before it ends here
