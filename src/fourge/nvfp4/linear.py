"""A linear layer that computes with the NVFP4 form of its weight and trains the weight itself.

    forward    y = x @ Q(W).T + b        (w4a4: Q(x) in place of x)
    backward   dx = dy @ Q(W)            straight through the rounding of x
               dW = dy.T @ x             straight through the rounding of W, to the master

``W`` is the master weight, an ordinary parameter in bf16 or float32. ``Q(W)`` is kept as codes:
made once per version of the weight (``master.py``) and used by forward, recompute, backward and
every decoded token. The dense form exists one layer at a time, in a scratch buffer.

Layers that a serving engine fuses (q/k/v; gate/up) form a ``ScaleGroup`` and share one tensor
scale; it depends on the largest weight of them all.

``w4a4`` quantises activations the way compressed-tensors does, with a fixed ``input_scale``
per layer that ``calibrating`` measures: what is trained is then what is served.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import _disable_current_modes

from fourge.core.errors import ConfigError
from fourge.nvfp4.blocks import E2M1_MAX, E4M3_MAX
from fourge.nvfp4.gathered import GatheredWeight
from fourge.nvfp4.gemm import Backend, Scheme, dense, dequant_linear, fp4_matmul, scratch
from fourge.nvfp4.kept import product
from fourge.nvfp4.master import MasterWeight, adopt
from fourge.nvfp4.matrix import (
    Nvfp4Matrix,
    dequantize,
    fake_quantize,
    quantize,
    require_blocks,
    tensor_scale_for,
)
from fourge.nvfp4.packed import ROOM, PackedWeight
from fourge.nvfp4.recipe import COMPRESSED_TENSORS, FOURGE, Recipe, power_of_two_at_least


class ScaleGroup:
    """Layers that share one tensor scale."""

    def __init__(self, members: list["Nvfp4Linear"], recipe: Recipe) -> None:
        self.members = members
        self.recipe = recipe
        self._scale: Tensor | None = None
        self._scale_versions: list[object] = []
        for member in members:
            member.group = self

    def versions(self) -> list[object]:
        """Differs after any write to any member's weight."""
        return [member.weight_version() for member in self.members]

    def tensor_scale(self, versions: list[object]) -> Tensor:
        """The scale for the members' weights as they are now."""
        if self._scale is None or versions != self._scale_versions:
            weights = [member.weight for member in self.members]
            self._scale = tensor_scale_for(weights, recipe=self.recipe)
            self._scale_versions = versions
        return self._scale

    @torch.no_grad()
    def load_codes_(self, matrices: list[Nvfp4Matrix]) -> None:
        """Start from codes made elsewhere: used as they are until a member is next written."""
        for member, matrix in zip(self.members, matrices, strict=True):
            member.weight.copy_(dequantize(matrix, dtype=member.weight.dtype))
        versions = self.versions()
        for member, matrix in zip(self.members, matrices, strict=True):
            member.keep_codes(matrix, versions)
            member.loaded = True

    @torch.no_grad()
    def pack_(self) -> None:
        """Make the codes the master: the members' dense weights are given up. Once is enough."""
        if all(isinstance(member.weight, PackedWeight) for member in self.members):
            return
        scale = self.tensor_scale(self.versions()) * ROOM
        for member in self.members:
            matrix = quantize(member.weight, recipe=self.recipe, tensor_scale=scale)
            member.weight = PackedWeight(matrix)
            member.drop_codes()

    @torch.no_grad()
    def keep_codes_only_(self, matrices: list[Nvfp4Matrix] | None = None) -> None:
        """For serving: give up the dense weights and compute with these codes, or those of now."""
        codes = matrices or [member.codes() for member in self.members]
        for member, matrix in zip(self.members, codes, strict=True):
            member.weight = PackedWeight(matrix, member.weight.dtype, requires_grad=False)
            member.drop_codes()

    def still_loaded(self) -> bool:
        """Whether every weight is still what its loaded codes stand for, whatever touched it."""
        return all(member.still_loaded() for member in self.members)


class Nvfp4Linear(nn.Linear):
    """Takes the place of an ``nn.Linear`` and keeps its parameters and their names."""

    weight: nn.Parameter
    group: ScaleGroup
    input_scale: Tensor | None

    def __init__(
        self, linear: nn.Linear, *, scheme: Scheme, backend: Backend, recipe: Recipe = FOURGE
    ) -> None:
        require_blocks(linear.weight.shape)
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = adopt(linear.weight)
        self.bias = linear.bias
        self.scheme: Scheme = scheme
        self.backend: Backend = backend
        self.observed: Tensor | None = None  # largest input magnitude, while calibrating
        self.register_buffer("input_scale", None)
        self.loaded = False  # the codes came from elsewhere, and the weight from them
        self._codes: Nvfp4Matrix | None = None
        self._codes_versions: list[object] = []
        self.train(linear.training)
        ScaleGroup([self], recipe)

    def weight_version(self) -> object:
        """Differs after any write to the weight; never equal for a weight we cannot watch."""
        weight = self.weight
        if type(weight) is nn.Parameter:  # put in place after us, by unpickling for one
            weight = adopt(weight)
        if not isinstance(weight, MasterWeight) or weight.is_inference() or weight.has_alias:
            return object()
        return weight.version

    def codes(self) -> Nvfp4Matrix:
        """The NVFP4 form of the weight as it is now."""
        if isinstance(self.weight, PackedWeight | GatheredWeight):
            return self.weight.matrix
        versions = self.group.versions()
        if self._codes is None or versions != self._codes_versions:
            # Codes outlive the block that first needs them, and are no part of what it records.
            with torch.inference_mode(False), _disable_current_modes():
                self.keep_codes(self._fresh_codes(versions), versions)
        assert self._codes is not None, "codes were just made"
        return self._codes

    def _fresh_codes(self, versions: list[object]) -> Nvfp4Matrix:
        if self._codes is not None and self.loaded and self.group.still_loaded():
            return self._codes  # moved, copied or looked at, but not written
        self.loaded = False
        scale = self.group.tensor_scale(versions)
        place = self.group.members.index(self)
        untouched = self._codes_versions[place : place + 1] == versions[place : place + 1]
        if self._codes is not None and untouched and torch.equal(self._codes.tensor_scale, scale):
            return self._codes  # only another member was written, and the scale stayed
        return quantize(self.weight, recipe=self.group.recipe, tensor_scale=scale)

    def still_loaded(self) -> bool:
        """Whether the weight is, value for value, what the loaded codes stand for."""
        if self._codes is None or not self.loaded:
            return False
        self._codes = self._codes.to(self.weight.device)
        return torch.equal(dequantize(self._codes, dtype=self.weight.dtype), self.weight)

    def keep_codes(self, matrix: Nvfp4Matrix, versions: list[object]) -> None:
        """Use these codes for as long as the group's weights have these versions."""
        self._codes, self._codes_versions = matrix, versions
        if isinstance(self.weight, MasterWeight):
            self.weight.on_update(self.drop_codes)

    def drop_codes(self) -> None:
        """Free the codes; the next forward makes new ones."""
        self._codes, self._codes_versions, self.loaded = None, [], False

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            x = x.to(torch.get_autocast_dtype(device))
        if self.observed is not None:
            self.observed = torch.maximum(self.observed, x.detach().abs().amax().float())
        flat = x.reshape(-1, self.in_features)
        if torch.is_grad_enabled():
            y: Tensor = _Multiply.apply(flat, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        else:  # autograd's bookkeeping takes longer than a row of a small layer
            is_step = x.dim() > 2 and x.shape[-2] == 1
            y = _product(flat, self.codes(), self.bias, self, is_step=is_step)[1]
        return y.view(*x.shape[:-1], self.out_features)

    def quantized_input(self, x: Tensor) -> Tensor:
        """What the GEMM sees of activation rows: rounded to NVFP4 under ``w4a4``, else ``x``."""
        if self.scheme == "w4a16" or self.observed is not None or not len(x):
            return x
        scale, out = self.require_input_scale(), torch.empty_like(x).contiguous()
        return fake_quantize(
            x, recipe=COMPRESSED_TENSORS, tensor_scale=scale, out=out, what="activation"
        )

    def require_input_scale(self) -> Tensor:
        if self.input_scale is None:
            raise ConfigError(
                "A w4a4 layer has no input scale.",
                why="activations are divided by a fixed scale, measured on real text",
                fix="run the model on a few texts inside `with calibrating(model):`",
            )
        return self.input_scale

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.scheme}, backend={self.backend}"


def _product(
    x: Tensor,
    matrix: Nvfp4Matrix,
    bias: Tensor | None,
    layer: Nvfp4Linear,
    *,
    is_step: bool = False,
) -> tuple[Tensor | Nvfp4Matrix, Tensor]:
    """What the GEMM sees of activation rows, and what it gives."""
    bias = None if bias is None else bias.to(x.dtype)
    if layer.backend == "fp4" and layer.observed is None and len(x):
        scale = layer.require_input_scale()
        activation = quantize(x, recipe=COMPRESSED_TENSORS, tensor_scale=scale)
        y = product(lambda: fp4_matmul(activation, matrix, x.dtype))
        return activation, y if bias is None else y + bias
    seen = layer.quantized_input(x)
    return seen, product(lambda: dequant_linear(seen, matrix, bias, is_step=is_step))


class _Multiply(torch.autograd.Function):
    """The product of rows, with gradients that pass straight through the rounding."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Nvfp4Linear
    ) -> Tensor:
        matrix = layer.codes()
        ctx.weight_dtype, ctx.bias_dtype = weight.dtype, None if bias is None else bias.dtype
        # Saved as tensors, not kept as an attribute: autograd lets go of them when they were used.
        codes = (matrix.packed_RC, matrix.block_scale_RB, matrix.tensor_scale)
        seen, y = _product(x, matrix, bias, layer)
        if isinstance(seen, Nvfp4Matrix):
            seen = dequantize(seen, dtype=x.dtype)
        ctx.save_for_backward(seen, *codes)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        seen, *codes = ctx.saved_tensors
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_y @ dense(Nvfp4Matrix(*codes), grad_y.dtype)
        if ctx.needs_input_grad[1]:
            grad_w = _gradient_of_weight(grad_y, seen, ctx.weight_dtype)
        if ctx.needs_input_grad[2]:
            grad_b = grad_y.sum(0).to(ctx.bias_dtype)
        return grad_x, grad_w, grad_b, None


def _gradient_of_weight(grad_y: Tensor, seen: Tensor, dtype: torch.dtype) -> Tensor:
    """``dy.T @ x``; where it is rounded afterwards, made in the buffer that held the weight."""
    if grad_y.dtype == dtype:
        return grad_y.T @ seen
    buffer = scratch((grad_y.shape[1], seen.shape[1]), grad_y.dtype, grad_y.device)
    return torch.mm(grad_y.T, seen, out=buffer).to(dtype)


@contextmanager
def calibrating(model: nn.Module) -> Iterator[None]:
    """Measure each layer's largest input while the block runs the model; then fix the scales.

    Activations are not quantised meanwhile, so that no layer is measured on another's rounding.
    The scale is a power of two, as for weights, hence the headroom is up to a factor of two.

    Raises:
        ConfigError: a layer saw no input, or only zeros.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, Nvfp4Linear)}
    for layer in layers.values():
        layer.observed = torch.zeros((), device=layer.weight.device)
    try:
        yield
        for name, layer in layers.items():
            assert layer.observed is not None, "set above"
            if not 0 < layer.observed < float("inf"):
                raise ConfigError(
                    f"{name} saw no input to calibrate on.",
                    why=f"its largest input was {layer.observed.item()}",
                    fix="run the model on text that reaches every layer",
                )
            layer.input_scale = power_of_two_at_least(layer.observed / (E2M1_MAX * E4M3_MAX))
    finally:
        for layer in layers.values():
            layer.observed = None
