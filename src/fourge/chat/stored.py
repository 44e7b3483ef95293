"""A session in one safetensors file, to go on with another day.

| tensor                | holds                                                               |
|-----------------------|---------------------------------------------------------------------|
| ``layer.<n>.keys`` .. | the cache, as it is: the next logits are the same, bit for bit      |
| ``session``           | JSON in UTF-8: messages, spans, counts, the digest of the model     |
| ``digest``            | blake2b over all of the above                                       |

The cache of another model would be read without complaint and answer nonsense, so the digest of
the weights must be the same. For a model that is not (in another dtype, after more training) the
messages can still be had, from the session's log.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourge.chat.conversation import Span
from fourge.chat.feed import layer_tensors
from fourge.chat.session import Session
from fourge.core.errors import ConfigError, DataError, FormatError
from fourge.core.files import whole_file
from fourge.data.records import Message
from fourge.formats.safetensors_file import Record, read_safetensors, write_safetensors
from fourge.formats.stored import KIND_OF, bytes_of
from fourge.model.digest import digest_of_weights
from fourge.model.mixed import activation_dtype

FORMAT = 1
_LENGTH = "cumulative_length"  # of a layer that keeps a window only


def save_session(session: Session, path: Path, *, overwrite: bool = False) -> None:
    """Write a session.

    Raises:
        OutputError: it cannot be written there.
        ConfigError: the model's cache is of a kind that is not keys and values.
    """
    tensors = _cache_tensors(session)
    state = {
        "format": FORMAT,
        "model": digest_of_weights(session.feed.model),
        "cache": session.feed.kind,
        "messages": [asdict(message) for message in session.messages],
        "spans": [asdict(span) for span in session.spans],
        "ids": session.feed.ids,
        "turns": session.turns,
        "lengths": [getattr(layer, _LENGTH, None) for layer in session.feed.cache.layers],
    }
    text = json.dumps(state, ensure_ascii=False).encode()
    tensors["session"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    tensors["digest"] = _digest(tensors)
    records = [Record(n, KIND_OF[t.dtype], tuple(t.shape)) for n, t in tensors.items()]
    with whole_file(path, overwrite=overwrite) as temporary:
        write_safetensors(temporary, records, (tensor.cpu() for tensor in tensors.values()))


def load_session(session: Session, path: Path) -> None:
    """Put a saved conversation, and its cache, in the place of the session's.

    Raises:
        FormatError: the file is damaged, or is no session; the session stays as it was.
        ConfigError: it is of another model, or of another kind of cache.
    """
    state, tensors = _read(path)
    _require_same(session, path, state)
    try:
        messages = [Message(**each) for each in state["messages"]]
    except DataError as error:
        raise FormatError(f"{path} is not a conversation.", why=error.problem) from error
    session.feed.reset()
    layers = zip(session.feed.cache.layers, state["lengths"], strict=True)
    for index, (layer, length) in enumerate(layers):
        _fill(layer, tensors, index, length, session.feed.model)
    session.feed.ids = state["ids"]
    session.messages, session.turns, session.last = messages, state["turns"], None
    session.spans = [Span(s["text"], tuple(s["ids"]), s["said"]) for s in state["spans"]]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says and the tensors of its cache, every byte checked."""
    tensors = {name: stored.dense() for name, stored in read_safetensors(path).items()}
    given = tensors.pop("digest", None)
    if given is None or "session" not in tensors:
        raise FormatError(f"{path} is not a session.", fix="give a file that /save wrote")
    if not torch.equal(given, _digest(tensors)):
        raise FormatError(f"{path} is damaged.", why="its bytes do not match their digest")
    state: dict[str, Any] = json.loads(bytes_of(tensors.pop("session")).tobytes())
    if state["format"] != FORMAT:
        raise FormatError(f"{path} is of format {state['format']}; this version reads {FORMAT}.")
    return state, tensors


def _require_same(session: Session, path: Path, state: dict[str, Any]) -> None:
    if state["model"] != digest_of_weights(session.feed.model):
        raise ConfigError(
            f"{path} is of another model.",
            why="the weights, or the dtype they are loaded in, have another digest, and the "
            "cache of one model means nothing to another",
            fix="load the model it was saved with, or take up its messages: --load LOG.jsonl",
        )
    if state["cache"] != session.feed.kind:
        raise ConfigError(
            f"{path} has a {state['cache']} cache; this chat's is {session.feed.kind}.",
            fix=f"start with --cache {state['cache']}",
        )


def _cache_tensors(session: Session) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for index, layer in enumerate(session.feed.cache.layers):
        if not hasattr(layer, "keys"):
            raise ConfigError(
                "This model's cache cannot be saved.",
                why=f"layer {index} keeps a {type(layer).__name__}, not keys and values",
            )
        tensors = layer_tensors(layer)
        found |= {f"layer.{index}.{name}": t.contiguous() for name, t in tensors.items()}
    return found


def _fill(
    layer: Any, tensors: dict[str, Tensor], index: int, length: int | None, model: Any
) -> None:
    prefix = f"layer.{index}."
    own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    if not own:
        return
    own = {name: tensor.to(model.device) for name, tensor in own.items()}
    # The layer learns the dtype of what it will be given, whatever it keeps it in.
    dtype = activation_dtype(model)
    layer.lazy_initialization(own["keys"].to(dtype), own["values"].to(dtype))
    for name, value in own.items():
        setattr(layer, name, value)
    if length is not None:
        layer.cumulative_length = length


def _digest(tensors: dict[str, Tensor]) -> Tensor:
    whole = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        whole.update(f"{name} {KIND_OF[tensor.dtype]} {list(tensor.shape)}\n".encode())
        whole.update(bytes_of(tensor))
    return torch.frombuffer(bytearray(whole.digest()), dtype=torch.uint8)
