"""One AdamW update of a chunk of blocks: decode, step in float32, encode, in one pass.

    g = grad * grad_scale
    m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
    w = keep w - step_size m / (sqrt(v) * root_scale + eps)

``keep`` is ``1 - lr * weight_decay`` (decoupled, before the step), ``step_size`` is
``lr / (1 - beta1^t)``, ``root_scale`` is ``1 / sqrt(1 - beta2^t)``.

For each pair of master and moment format the functions of ``masters`` and ``moments`` are put
together into one function, which ``torch.compile`` fuses: every byte of weight, gradient and
state is read once and written once, and no float32 copy of a chunk exists. 4-bit codes are taken
apart and put together by stages of their own, because packing inside would stop the compiler
from using vectors.

Each element has 32 random bits, a hash of its index: 16 round the weight, 8 m and 8 v
(with those 16 below them).

Shapes: N blocks of K values, H = K / 2.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fourge.core import rng
from fourge.nvfp4.compiled import compiled
from fourge.optim.masters import MasterFormat, join, round_stochastic, split
from fourge.optim.moments import (
    MomentFormat,
    State,
    decode_ratio,
    decode_v,
    encode_ratio,
    encode_v,
    pack_halves,
    root,
    unpack_halves,
)

Run = Callable[[Callable[..., None]], Callable[..., None]]
TOP8, TOP4 = 127, 7  # largest magnitude of m's code
SMALL = 64  # blocks; below, the plain function is as fast as the call


def _compile(stage: Callable[..., None]) -> Callable[..., None]:
    return compiled(stage, small=SMALL)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The scalars of one update, rounded to float32 when they reach the kernel."""

    beta1: float
    one_minus_beta1: float
    beta2: float
    one_minus_beta2: float
    step_size: float
    keep: float
    root_scale: float
    eps: float
    reach: float
    grad_scale: float

    def tensor(self, device: torch.device) -> Tensor:
        return _tensor_of(self, device)


@functools.lru_cache(maxsize=8)  # most tensors of a step have the same
def _tensor_of(numbers: Numbers, device: torch.device) -> Tensor:
    values = [getattr(numbers, name) for name in numbers.__slots__]
    return torch.tensor(values, dtype=torch.float32, device=device)


def update_(
    weight_NK: Tensor,
    residual_NK: Tensor | None,
    grad_NK: Tensor,
    state: State,
    form: MomentFormat,
    numbers: Tensor,
    words: Tensor,
    first: Tensor,
    run: Run = _compile,
) -> None:
    """Update weight and moments of these blocks in place.

    ``first`` is the index, in the whole tensor, of the first value. ``residual`` makes the
    master bf16+8; otherwise the weight's dtype says what it is. ``run`` compiles, or does not.
    """
    master: MasterFormat = "bf16" if weight_NK.dtype == torch.bfloat16 else "fp32"
    weights = [weight_NK]
    if residual_NK is not None:
        master, weights = "bf16+8", [weight_NK, residual_NK]
    parts = state
    if form == "nvfp4":
        unpacked = {name: torch.empty_like(weight_NK, dtype=torch.uint8) for name in ("m", "v")}
        for name, code_NK in unpacked.items():
            run(_unpack_)(state[name], code_NK)
        parts = {**state, **unpacked}
    run(_stage(master, form))(*weights, grad_NK, *parts.values(), numbers, words, first)
    if form == "nvfp4":
        for name, code_NK in unpacked.items():
            run(_pack_)(code_NK, state[name])


def _unpack_(packed_NH: Tensor, code_NK: Tensor) -> None:
    code_NK.copy_(unpack_halves(packed_NH))


def _pack_(code_NK: Tensor, packed_NH: Tensor) -> None:
    packed_NH.copy_(pack_halves(code_NK))


@functools.cache
def _stage(master: MasterFormat, form: MomentFormat) -> Callable[..., None]:
    """The update for one pair of formats, as one function of tensors."""
    weight_parts = 2 if master == "bf16+8" else 1

    def update(*tensors: Tensor) -> None:
        weights, grad_NK = tensors[:weight_parts], tensors[weight_parts]
        parts, (numbers, words, first) = tensors[weight_parts + 1 : -3], tensors[-3:]
        n = Numbers(*(numbers[i] for i in range(len(Numbers.__slots__))))  # type: ignore[arg-type]
        grad_NK = grad_NK.to(torch.float32) * n.grad_scale
        old_m_NK, old_v_NK = _READ[form](parts, n)
        m_NK = old_m_NK * n.beta1 + grad_NK * n.one_minus_beta1
        v_NK = old_v_NK * n.beta2 + grad_NK * grad_NK * n.one_minus_beta2
        root_NK = root(v_NK)
        value_NK = _value(weights) * n.keep - n.step_size * m_NK / (root_NK * n.root_scale + n.eps)
        bits_NK = _bits(value_NK, words, first)
        _write_weight_(weights, value_NK, bits_NK)
        _WRITE[form](parts, m_NK, v_NK, root_NK, bits_NK, n)

    return update


def _value(weights: tuple[Tensor, ...]) -> Tensor:
    near = weights[0].to(torch.float32)
    return near if len(weights) == 1 else join(near, weights[1])


def _write_weight_(weights: tuple[Tensor, ...], value_NK: Tensor, bits_NK: Tensor) -> None:
    if len(weights) == 2:
        near, residual = split(value_NK, bits_NK)
        weights[0].copy_(near.to(weights[0].dtype))
        weights[1].copy_(residual.to(torch.int8))
    elif weights[0].dtype == torch.bfloat16:
        weights[0].copy_(round_stochastic(value_NK, bits_NK).to(torch.bfloat16))
    else:
        weights[0].copy_(value_NK)


def _bits(value_NK: Tensor, words: Tensor, first: Tensor) -> Tensor:
    """32 random bits per element, from its index in the whole tensor."""
    N, K = value_NK.shape
    start_N = torch.arange(N, device=value_NK.device) * K + first
    return rng.block_bits(words, start_N, K)


def _noise(bits: Tensor, shift: int) -> Tensor:
    """Uniform in [0, 1): eight bits of an element's own, and below them those of the weight.

    Eight alone would make it 1/512 too small on average, which a moment that remembers for
    thousands of steps adds up: v came out at 0.4 of its size with beta2 = 0.999 and 4 bits.
    """
    own = ((bits >> shift) & 0xFF).to(torch.float32) * 2.0**-8
    return own + (bits & 0xFFFF).to(torch.float32) * 2.0**-24


def _read_fp32(parts: tuple[Tensor, ...], n: Numbers) -> tuple[Tensor, Tensor]:
    return parts[0], parts[1]


def _write_fp32(
    parts: tuple[Tensor, ...], m_NK: Tensor, v_NK: Tensor, root_NK: Tensor, bits: Tensor, n: Numbers
) -> None:
    parts[0].copy_(m_NK)
    parts[1].copy_(v_NK)


def _read_int8(parts: tuple[Tensor, ...], n: Numbers) -> tuple[Tensor, Tensor]:
    m_NK, v_NK, low_N, step_N = parts
    value_NK = decode_v(v_NK, low_N, step_N)
    unit = n.reach * (1.0 / TOP8**2)
    return decode_ratio(m_NK.to(torch.float32), unit) * root(value_NK), value_NK  # type: ignore[arg-type]


def _write_int8(
    parts: tuple[Tensor, ...], m_NK: Tensor, v_NK: Tensor, root_NK: Tensor, bits: Tensor, n: Numbers
) -> None:
    share_NK = torch.where(v_NK > 0, m_NK.abs() / (root_NK * n.reach), 0.0) * float(TOP8**2)
    code_NK = encode_ratio(share_NK, _noise(bits, 16), TOP8)
    parts[0].copy_(torch.where(m_NK < 0, -code_NK, code_NK).to(torch.int8))
    _write_v_(parts[1:4], v_NK, bits, 255)


def _write_v_(parts: tuple[Tensor, ...], v_NK: Tensor, bits: Tensor, top_code: int) -> None:
    code_NK, low_N, step_N = encode_v(v_NK, _noise(bits, 24), top_code)
    parts[0].copy_(code_NK.to(torch.uint8))
    parts[1].copy_(low_N)
    parts[2].copy_(step_N)


def _read_nvfp4(parts: tuple[Tensor, ...], n: Numbers) -> tuple[Tensor, Tensor]:
    m_NK, v_NK, low_N, step_N, reach_N = parts
    value_NK = decode_v(v_NK, low_N, step_N)
    raw_NK = m_NK.to(torch.float32)
    signed_NK = torch.where(raw_NK >= 8.0, 8.0 - raw_NK, raw_NK)
    unit_N1 = reach_N.unsqueeze(-1) * (1.0 / TOP4**2)
    return decode_ratio(signed_NK, unit_N1) * root(value_NK), value_NK


def _write_nvfp4(
    parts: tuple[Tensor, ...], m_NK: Tensor, v_NK: Tensor, root_NK: Tensor, bits: Tensor, n: Numbers
) -> None:
    ratio_NK = torch.where(v_NK > 0, m_NK.abs() / root_NK, 0.0)
    reach_N = ratio_NK.amax(-1)
    per_unit_N = torch.where(reach_N > 0, TOP4**2 / reach_N, 0.0)
    code_NK = encode_ratio(ratio_NK * per_unit_N.unsqueeze(-1), _noise(bits, 16), TOP4)
    parts[0].copy_(torch.where(m_NK < 0, code_NK + 8.0, code_NK).to(torch.uint8))
    _write_v_(parts[1:4], v_NK, bits, 15)
    parts[4].copy_(reach_N)


_READ = {"fp32": _read_fp32, "int8": _read_int8, "nvfp4": _read_nvfp4}
_WRITE = {"fp32": _write_fp32, "int8": _write_int8, "nvfp4": _write_nvfp4}
