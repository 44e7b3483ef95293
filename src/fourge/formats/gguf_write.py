"""Writing a GGUF that llama.cpp runs: NVFP4 weights with their scales, and the tokenizer.

The ``gguf`` package lays out the file; tensors are handed to it one at a time. Its own NVFP4
encoder is not used: it knows a single level of scale and loses 96 % of a weight of std 0.002.
"""

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from fourge.formats.gguf_file import Metadata, require_runs, to_runs
from fourge.formats.stored import KINDS, NVFP4, Stored, Tensors

_FILE_TYPE_NVFP4 = 39
# What the writer itself decides, whatever the metadata of a source says.
_OURS = ("general.architecture", "general.file_type", "general.alignment")
_GGML = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
}


def write_gguf(path: Path, tensors: Tensors, metadata: Metadata) -> None:
    """Write tensors (under GGUF's names) and metadata.

    Raises:
        FormatError: a weight whose rows do not divide into runs of 64.
    """
    for name, stored in tensors.items():
        if stored.kind == NVFP4:
            require_runs(stored.shape[1], name)
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if key not in _OURS:
            _add(writer, key, value)
    writer.add_file_type(_FILE_TYPE_NVFP4)
    for name, stored in tensors.items():
        _announce(writer, name, stored)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for stored in tensors.values():
            for data in _data(stored):
                writer.write_tensor_data(data)
    finally:
        writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    add: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    if isinstance(value, int) and not isinstance(value, bool):
        (writer.add_uint32 if 0 <= value < 1 << 32 else writer.add_int64)(key, value)
        return
    if value != []:
        add[type(value)](key, value)


def _announce(writer: gguf.GGUFWriter, name: str, stored: Stored) -> None:
    if stored.kind == NVFP4:
        rows, cols = stored.shape
        nvfp4 = gguf.GGMLQuantizationType.NVFP4
        nbytes = rows * cols // 64 * 36
        writer.add_tensor_info(name, (rows, cols // 64 * 36), np.dtype(np.uint8), nbytes, nvfp4)
        writer.add_tensor_info(_scale_name(name), (1,), np.dtype(np.float32), 4)
        return
    kind = _kind(stored)
    shape = stored.shape or (1,)
    nbytes = prod(shape) * KINDS[kind].itemsize
    dtype = np.dtype(np.float32 if kind == "f32" else np.float16)
    writer.add_tensor_info(name, shape, dtype, nbytes, _GGML[kind])


def _scale_name(name: str) -> str:
    return f"{name.removesuffix('.weight')}.scale"


def _kind(stored: Stored) -> str:
    """Matrices as they are; vectors in float32, the only form that ggml adds and multiplies."""
    return stored.kind if len(stored.shape) == 2 and stored.kind in _GGML else "f32"


def _data(stored: Stored) -> Iterator[np.ndarray[Any, Any]]:
    if stored.kind == NVFP4:
        matrix = stored.matrix()
        yield to_runs(matrix).numpy()
        yield _array(matrix.tensor_scale.reshape(1))
        return
    yield _array(stored.dense().to(KINDS[_kind(stored)]))


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.cpu().contiguous()
    return (tensor.view(torch.float16) if tensor.dtype is torch.bfloat16 else tensor).numpy()
