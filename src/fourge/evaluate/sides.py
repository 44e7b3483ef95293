"""The two models of a comparison: which ones, on which path, in which dtype, and what is promised.

| `--against`      | the other model                                                       |
|------------------|-----------------------------------------------------------------------|
| `train`, `packed`| the same codes, made from master weights or kept alone (`chat.load`)  |
| `transformers`   | the same codes, as an export that plain transformers loads            |
| `dense`, `bf16`  | the same weights before they were rounded, in the same dtype or bf16  |
| anything else    | another model, a checkpoint or a run, on its own path                 |

Two sides that are both NVFP4, or both not, in one dtype, are to be equal bit for bit. A side that
is rounded and one that is not can only be close.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fourge.chat.conversation import Template, ids_of
from fourge.chat.load import choose_path, has_nvfp4, load
from fourge.chat.session import context_of
from fourge.checkpoint.source import Opened, open_any
from fourge.core.errors import ConfigError, DataError
from fourge.evaluate.plain import load_plain
from fourge.model.export import export, outgoing_from_model
from fourge.model.swap import choose_device, compute_dtype

logger = logging.getLogger(__name__)

EXPORT = "compressed-tensors"
IN_BF16 = ("bf16", "transformers")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two."""

    name: str  # for people
    opened: Opened
    path: str  # dense, train, packed or transformers
    dtype: str


def two_sides(
    model: str, path: str, against: str | None, *, dtype: str = "auto", device: str = "auto"
) -> tuple[Side, Side]:
    """The models that are meant; nothing is loaded yet.

    Raises:
        ConfigError: there is no such form of the model.
        FormatError: there is no such model.
    """
    against = against or ("train" if path == "packed" else "packed")
    if dtype == "auto":
        found = str(compute_dtype(choose_device(device))).removeprefix("torch.")
        dtype = "bfloat16" if against in IN_BF16 else found
    if against == "transformers" and dtype != "bfloat16":
        raise ConfigError(
            f"Plain transformers has no {dtype} form of an export.",
            why="compressed-tensors decodes every weight to bf16",
            fix="compare in bf16: --dtype bfloat16, or leave it out",
        )
    opened = open_any(model)
    one = _side(opened, path, dtype)
    if against in ("dense", "train", "packed", "transformers"):
        return one, _side(opened, against, dtype)
    if against == "bf16":
        return one, _side(opened, "dense", "bfloat16")
    other = open_any(against)
    return one, Side(against, other, choose_path(other, "auto"), dtype)


def _side(opened: Opened, path: str, dtype: str) -> Side:
    if path == "dense":
        if has_nvfp4(opened.source):
            raise ConfigError(
                f"{opened.source.path} is NVFP4: what its weights were before is not in it.",
                fix="name the model that it was made from: --against MODEL",
            )
        opened = replace(opened, scheme="none")
    return Side(path, opened, path, dtype)


def must_be_equal(one: Side, other: Side) -> bool:
    """Whether the two are promised to give the same logits, bit for bit."""
    same_form = (one.path == "dense") == (other.path == "dense")
    return same_form and one.dtype == other.dtype


@contextmanager
def loaded(side: Side, device: str) -> Iterator[Any]:
    """The model of a side, for as long as the block lasts."""
    if side.path != "transformers":
        yield load(side.opened, path=side.path, device=device, dtype=side.dtype).model
        return
    with tempfile.TemporaryDirectory() as folder:
        where = _exported(side, Path(folder) / "export")
        yield load_plain(where, device=device, dtype=torch.bfloat16)


def _exported(side: Side, empty: Path) -> Path:
    """The model as a folder for transformers: itself if it is one, else written now."""
    source = side.opened.source
    if side.opened.checkpoint is None and source.layout == EXPORT:
        return source.path
    model = load(side.opened, path="packed", device="cpu", dtype=side.dtype).model
    outgoing = outgoing_from_model(model, EXPORT, source.write_tokenizer, source.path.stem)
    export(outgoing, empty, EXPORT)
    return empty


def prompt_of(one: Side, other: Side, text: str, tokens: int) -> list[int]:
    """The tokens of a question to both.

    Raises:
        ConfigError: the two models read it differently.
        DataError: it is empty, or too long.
    """
    ids, theirs = (_ids(side.opened, text) for side in (one, other))
    if ids != theirs:
        raise ConfigError(
            f"{one.opened.source.path} and {other.opened.source.path} read the prompt differently.",
            why="their tokenizers or chat templates are not the same",
            fix="compare models of one family",
        )
    room = min(context_of(side.opened.source.config, None) for side in (one, other))
    if not ids or len(ids) + tokens > room:
        raise DataError(
            f"The prompt has {len(ids)} tokens, and {tokens} are to follow.",
            why=f"the model has room for {room}",
            fix="give another --prompt, or fewer --tokens",
        )
    return ids


def _ids(opened: Opened, text: str) -> list[int]:
    tokenizer = opened.source.tokenizer()
    if not tokenizer.chat_template:
        logger.info("%s has no chat template: the prompt is plain text", opened.source.path)
        return list(tokenizer(text)["input_ids"])
    template = Template(tokenizer, opened.template_arguments)
    return ids_of(template.prompt([template.question(text)]))
