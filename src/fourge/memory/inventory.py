"""What stays in memory for the length of a run: weights, their codes, the optimizer's state.

Every size is asked of whoever allocates it. The model is on the meta device with one layer, whose
tensors count once for every layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from fourge.memory.trace import meta_model
from fourge.memory.wanted import Wanted
from fourge.model.swap import nvfp4_layers
from fourge.nvfp4.gemm import scratch_nbytes
from fourge.nvfp4.matrix import Nvfp4Matrix
from fourge.nvfp4.packed import PackedWeight
from fourge.optim import tensor as optim_tensor
from fourge.optim.moments import nbytes_for
from fourge.train.prepare import storage_dtype

LAYER = ".layers.0."  # in the names of what every layer has


@dataclass(frozen=True, slots=True)
class Piece:
    """One parameter, or ``times`` equal ones."""

    name: str
    shape: tuple[int, ...]
    times: int
    trained: bool
    master: int  # bytes, each
    residual: int
    moments: int
    codes: int  # beside the master
    gradient: int
    update_scratch: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Inventory:
    pieces: tuple[Piece, ...]
    loaded: int  # all weights, as they are loaded
    decoded: int  # the buffer that weights are decoded into
    buffers: int

    def total(self, what: str) -> int:
        """Bytes of one kind over all parameters, by the name of a field of ``Piece``."""
        return sum(piece.times * int(getattr(piece, what)) for piece in self.pieces)

    def largest(self, what: str) -> int:
        return max((int(getattr(piece, what)) for piece in self.pieces), default=0)

    @property
    def weights(self) -> int:
        return sum(piece.times * piece.elements for piece in self.pieces)

    @property
    def in_layers(self) -> list[Piece]:
        """The trained parameters of a block."""
        return [piece for piece in self.pieces if piece.trained and LAYER in piece.name]


def take_inventory(wanted: Wanted) -> Inventory:
    """The tensors of a run, with the bytes of every form of each."""
    model = meta_model(wanted, 1)
    quantized = {f"{name}.weight": layer for name, layer in nvfp4_layers(model).items()}
    pieces = []
    for name, param in model.named_parameters():
        for times, trained in _repeats(wanted, name, param.requires_grad):
            pieces.append(_piece(wanted, name, param, times, trained, name in quantized))
    item = storage_dtype(wanted.master).itemsize
    shapes = [(layer.out_features, layer.in_features) for layer in quantized.values()]
    return Inventory(
        tuple(pieces),
        loaded=sum(piece.times * piece.elements for piece in pieces) * item,
        decoded=scratch_nbytes(shapes, wanted.compute),
        buffers=sum(buffer.nbytes for buffer in model.buffers()),
    )


def _repeats(wanted: Wanted, name: str, trained: bool) -> Iterator[tuple[int, bool]]:
    """How many parameters of the whole model this one stands for, trained and frozen."""
    if LAYER not in name:
        yield 1, trained
        return
    yield wanted.trained_layers, trained
    if wanted.layers > wanted.trained_layers:
        yield wanted.layers - wanted.trained_layers, False


def _piece(
    wanted: Wanted, name: str, param: object, times: int, trained: bool, quantized: bool
) -> Piece:
    assert hasattr(param, "shape"), "a tensor"
    shape = tuple(param.shape)
    codes = Nvfp4Matrix.nbytes_for(*shape) if quantized else 0
    packed = isinstance(param, PackedWeight)
    dense = prod(shape) * storage_dtype(wanted.master).itemsize
    has_residual = trained and wanted.master == "bf16+8"
    return Piece(
        name, shape, times, trained,
        master=codes if packed else dense,
        residual=prod(shape) if has_residual else 0,
        moments=nbytes_for(shape, wanted.moments) if trained else 0,
        codes=0 if packed else codes,
        gradient=dense if trained else 0,
        update_scratch=optim_tensor.scratch_nbytes(
            param, wanted.moments, wanted.chunk_rows  # type: ignore[arg-type]
        ) if trained else 0,
    )  # fmt: skip
