import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourge.checkpoint.state import (
    Contents,
    FileEntry,
    TensorEntry,
    TrainState,
    _first_line,
    decode,
    encode,
)
from fourge.core.errors import FormatError

CONTENTS = Contents(
    {"step": 3, "text": '"\n\\ 你', "rate": 1e-5},
    {"tensors-00001.safetensors": FileEntry(200, "ab" * 16)},
    {"a.weight": TensorEntry("tensors-00001.safetensors", "bf16", (2, 3), "cd" * 16)},
)
WHERE = Path("state.json")


def test_the_index_reads_back_as_it_was() -> None:
    assert decode(WHERE, encode(CONTENTS)) == CONTENTS


def test_the_index_is_json_that_anyone_can_read() -> None:
    tree = json.loads(encode(CONTENTS))
    assert list(tree) == ["digest", "format", "meta", "files", "tensors"]
    assert tree["tensors"]["a.weight"]["shape"] == [2, 3]


def test_no_byte_of_the_index_can_change_unseen() -> None:
    whole = encode(CONTENTS)
    for place, byte in enumerate(whole):
        for flip in (1, 0x20, 0x80, 0xFF):
            data = whole[:place] + bytes([byte ^ flip]) + whole[place + 1 :]
            with pytest.raises(FormatError, match=r"state\.json is damaged"):
                decode(WHERE, data)


@given(st.data())
def test_an_index_that_was_cut_or_grew_is_refused(data: st.DataObject) -> None:
    whole = encode(CONTENTS)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for text in (cut, whole + data.draw(st.binary(min_size=1, max_size=4))):
        with pytest.raises(FormatError, match="damaged"):
            decode(WHERE, text)


def rewritten(**changes: Any) -> bytes:
    """The index with other content and a digest that fits it."""
    tree = json.loads(encode(CONTENTS))
    del tree["digest"]
    rest = json.dumps({**tree, **changes})[1:].encode()
    return _first_line(rest) + rest


def test_another_format_is_named() -> None:
    with pytest.raises(FormatError, match="is of format 3; this version reads 1 and 2") as caught:
        decode(WHERE, rewritten(format=3))
    assert "the version of fourge that wrote it" in caught.value.fix


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"../x": {"nbytes": 1, "header": ""}}, "tensors": {}},
        {"files": {}},
        {"files": 3},
        {"tensors": {"a": {"file": "tensors-00001.safetensors"}}},
        {"tensors": {"a": None}},
    ],
)
def test_content_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="not the index of a checkpoint"):
        decode(WHERE, rewritten(**changes))


@pytest.mark.parametrize(
    ("meta", "word"),
    [
        ({}, "step"),
        ({"step": -1}, "step"),
        ({"step": True}, "step"),
        ({"step": 1.0}, "step"),
        ({"step": 1, "pair": (1, 2)}, "JSON"),
        ({"step": 1, "by": {1: 2}}, "JSON"),
        ({"step": 1, "loss": float("nan")}, "JSON"),
    ],
)
def test_a_state_is_checked_when_it_is_made(meta: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TrainState({}, meta)


def test_a_tensor_that_no_file_can_hold_is_refused_when_the_state_is_made() -> None:
    for name, tensor in (("__metadata__", torch.ones(1)), ("c", torch.ones(1).to(torch.cfloat))):
        with pytest.raises(ValueError, match="cannot be stored"):
            TrainState({name: tensor}, {"step": 0})
