"""How one NVFP4 weight is split into plain tensors: the names, shapes and scale directions.

| layout             | codes            | block scales    | tensor scale                        |
|--------------------|------------------|-----------------|-------------------------------------|
| compressed-tensors | `weight_packed`  | `weight_scale`  | `weight_global_scale` [1], DIVIDES   |
| modelopt           | `weight` (uint8) | `weight_scale`  | `weight_scale_2` [], multiplies      |
| dat                | `weight.qdata`   | `weight.scale`  | `weight.scale_2` [], multiplies      |

Activations (w4a4) have a scale of their own, with the same direction. In memory every scale
multiplies, and is called `<layer>.weight` (an ``Nvfp4Matrix``) and `<layer>.input_scale`.

The reciprocal is exact for our scales, which are powers of two. For a scale that another tool
chose, the reciprocal of the reciprocal may differ in the last bit; nothing can hold both.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fourge.core.errors import FormatError
from fourge.formats.safetensors_file import Record
from fourge.formats.stored import NVFP4, Stored, Tensors, scale_from
from fourge.nvfp4.blocks import BLOCK
from fourge.nvfp4.matrix import Nvfp4Matrix


@dataclass(frozen=True, slots=True)
class Layout:
    """Suffixes after the layer's name, and what the stored scale does."""

    name: str
    packed: str
    block_scale: str
    tensor_scale: str
    input_scale: str
    scale_shape: tuple[int, ...]
    divides: bool

    def to_file(self, scale: Tensor) -> Tensor:
        """A scale that multiplies, as this layout stores it."""
        stored = 1.0 / scale.float() if self.divides else scale.float()
        return stored.reshape(self.scale_shape)

    def from_file(self, stored: Tensor, name: str) -> Tensor:
        """A stored scale as one that multiplies.

        Raises:
            FormatError: it is not a positive number, or not one number.
        """
        return scale_from(stored, name, divides=self.divides)


COMPRESSED_TENSORS = Layout(
    "compressed-tensors",
    ".weight_packed",
    ".weight_scale",
    ".weight_global_scale",
    ".input_global_scale",
    scale_shape=(1,),  # with () torch does not promote bf16, and readers silently lose precision
    divides=True,
)
MODELOPT = Layout(
    "modelopt", ".weight", ".weight_scale", ".weight_scale_2", ".input_scale", (), False
)

DAT = Layout("dat", ".weight.qdata", ".weight.scale", ".weight.scale_2", ".input_scale", (), False)
DAT_BARE = Layout("dat", ".qdata", ".scale", ".scale_2", ".input_scale", (), False)


def detect(tensors: Tensors) -> Layout | None:
    """The layout of a folder's tensors, from their names; None if nothing is NVFP4."""
    if any(name.endswith(COMPRESSED_TENSORS.packed) for name in tensors):
        return COMPRESSED_TENSORS
    if any(_is_of_modelopt(tensors, name) for name in tensors):
        return MODELOPT
    return None


def _is_of_modelopt(tensors: Tensors, name: str) -> bool:
    """Its tensor scale; or, should all of those be missing, a block scale beside codes."""
    if not name.endswith(MODELOPT.block_scale):
        return name.endswith(MODELOPT.tensor_scale)
    codes = tensors.get(name.removesuffix(MODELOPT.block_scale) + MODELOPT.packed)
    return codes is not None and codes.kind == "u8"


def join(tensors: Tensors, layout: Layout, *, optional_scale: bool = False) -> dict[str, Stored]:
    """The mapping with the pieces of each NVFP4 weight put together as ``<layer>.weight``.

    ``optional_scale`` allows a weight without tensor scale (then 1), as in the original .dat.

    Raises:
        FormatError: a piece is missing, of the wrong type, does not fit, or is there twice.
    """
    joined: dict[str, Stored] = {}
    used = set[str]()
    for name, stored in tensors.items():
        layer = name.removesuffix(layout.packed)
        if layer != name and _is_quantized(tensors, layer, layout):
            pieces = _pieces(tensors, layer, layout, optional_scale=optional_scale)
            used.update(pieces)
            shape = (stored.shape[0], stored.shape[1] * 2)
            nbytes = sum(piece.nbytes for piece in pieces.values())
            read = partial(_assemble, pieces, layer, layout)
            _put(joined, f"{layer}.weight", Stored(shape, NVFP4, nbytes, read))
        elif name.endswith(layout.input_scale):
            layer = name.removesuffix(layout.input_scale)
            read_scale = partial(_read_scale, stored, name, layout)
            _put(joined, f"{layer}.input_scale", Stored((), "f32", 4, read_scale))
        else:
            _put(joined, name, stored)
    return {n: stored for n, stored in joined.items() if n not in used or stored.kind == NVFP4}


def _is_quantized(tensors: Tensors, layer: str, layout: Layout) -> bool:
    """Where codes have the name of a dense weight, a scale beside them tells."""
    scales = (layer + layout.block_scale, layer + layout.tensor_scale)
    return layout.packed != ".weight" or any(name in tensors for name in scales)


def _put(joined: dict[str, Stored], name: str, stored: Stored) -> None:
    if name in joined:
        raise FormatError(f"{name} is there twice, in two forms.", fix="export the file again")
    joined[name] = stored


def _pieces(
    tensors: Tensors, layer: str, layout: Layout, *, optional_scale: bool
) -> dict[str, Stored]:
    names = [layer + layout.packed, layer + layout.block_scale, layer + layout.tensor_scale]
    if optional_scale and names[2] not in tensors:
        names.pop()
    missing = [name for name in names if name not in tensors]
    if missing:
        raise FormatError(
            f"{missing[0]} is missing.",
            why=f"a weight in the {layout.name} layout is {', '.join(names)}",
            fix="export the file again",
        )
    packed, scale = tensors[names[0]], tensors[names[1]]
    if packed.kind != "u8" or scale.kind not in ("e4m3", "u8") or not _is_codes(packed.shape):
        raise FormatError(
            f"{names[0]} is not NVFP4.",
            why=f"codes are {packed.kind} {packed.shape}, block scales {scale.kind} {scale.shape}",
        )
    rows, half = packed.shape
    if scale.shape != (rows, half * 2 // BLOCK):
        raise FormatError(
            f"{names[1]} has shape {scale.shape}.",
            why=f"{rows} x {half * 2} values need {(rows, half * 2 // BLOCK)} block scales",
        )
    return {name: tensors[name] for name in names}


def _is_codes(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and 0 not in shape and shape[1] % (BLOCK // 2) == 0


def _assemble(pieces: dict[str, Stored], layer: str, layout: Layout) -> Nvfp4Matrix:
    packed = pieces[layer + layout.packed].dense()
    scale = pieces[layer + layout.block_scale].dense().view(torch.float8_e4m3fn)
    name = layer + layout.tensor_scale
    tensor_scale = torch.ones(())
    if name in pieces:
        tensor_scale = layout.from_file(pieces[name].dense(), name)
    if torch.isnan(scale.float()).any():
        raise FormatError(f"{layer}{layout.block_scale} has a scale that is not a number.")
    return Nvfp4Matrix(packed, scale, tensor_scale)


def _read_scale(stored: Stored, name: str, layout: Layout) -> Tensor:
    return layout.from_file(stored.dense(), name)


def announced(name: str, stored: Stored, layout: Layout) -> list[Record]:
    """The plain tensors that one tensor becomes in this layout."""
    if stored.kind == NVFP4:
        layer = name.removesuffix(".weight")
        rows, cols = stored.shape
        return [
            Record(layer + layout.packed, "u8", (rows, cols // 2)),
            Record(layer + layout.block_scale, "e4m3", (rows, cols // BLOCK)),
            Record(layer + layout.tensor_scale, "f32", layout.scale_shape),
        ]
    if name.endswith(".input_scale"):
        layer = name.removesuffix(".input_scale")
        return [Record(layer + layout.input_scale, "f32", layout.scale_shape)]
    return [Record(name, stored.kind, stored.shape)]


def parts(name: str, stored: Stored, layout: Layout) -> list[Tensor]:
    """The values of what ``announced`` announces, in its order."""
    value = stored.read()
    if isinstance(value, Nvfp4Matrix):
        scale = layout.to_file(value.tensor_scale)
        return [value.packed_RC, value.block_scale_RB, scale]
    return [layout.to_file(value) if name.endswith(".input_scale") else value]
