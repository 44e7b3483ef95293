"""``fourge bench nvfp4``: the number format against a memory copy, torchao and compressed-tensors.

Peers are asked for the same thing, float32 in and float32 out, through their public functions.
One that is not installed is left out, and said so in the title.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch

from fourge.bench.interleave import Part, interleaved
from fourge.model.embedded import EMBEDDED, embedded_path
from fourge.nvfp4.matrix import dequantize, fake_quantize, quantize
from fourge.nvfp4.recipe import TE

SIDE = 4096  # 16.8 million values

_OURS = """
from pathlib import Path
from fourge import api
api.convert({model!r}, Path({out!r}), "compressed-tensors", overwrite=True)
"""
_THEIRS = """
import torch
from transformers import AutoModelForCausalLM
AutoModelForCausalLM.from_pretrained({folder!r}, gguf_file={file!r}, dtype=torch.float32)
"""


def measure(rounds: int, *, load: bool) -> Iterator[Part]:
    """The parts of the benchmark, as they are done."""
    weight = torch.randn(SIDE, SIDE) * 0.02
    out = torch.empty_like(weight)
    matrix = quantize(weight)
    yield Part(
        f"{SIDE} x {SIDE} float32, into an existing buffer",
        "out.copy_(weight)",
        interleaved(
            {
                "out.copy_(weight)": lambda: out.copy_(weight),
                "fake-quantise, nearest": lambda: fake_quantize(weight, recipe=TE, out=out),
                "fake-quantise, four over six": lambda: fake_quantize(weight, out=out),
                "quantise to codes, nearest": lambda: quantize(weight, recipe=TE),
                "quantise to codes, four over six": lambda: quantize(weight),
                "dequantise": lambda: dequantize(matrix, out=out),
            },
            rounds,
        ),
    )
    yield _against_peers(weight, out, max(3, rounds // 5))
    if load:
        yield _load(max(3, rounds // 5))


def _against_peers(weight: torch.Tensor, out: torch.Tensor, rounds: int) -> Part:
    ours = "fourge fake-quantise"
    candidates: dict[str, Callable[[], object]] = {
        ours: lambda: fake_quantize(weight, recipe=TE, out=out),
        "fourge fake-quantise, four over six": lambda: fake_quantize(weight, out=out),
        "fourge quantise + dequantise": lambda: dequantize(quantize(weight, recipe=TE), out=out),
    }
    missing = []
    for name, package, make in (
        ("torchao", "torchao", _torchao),
        ("compressed-tensors", "compressed_tensors", _compressed_tensors),
    ):
        if find_spec(package):
            candidates[f"{name} quantise + dequantise"] = make(weight)
        else:
            missing.append(name)
    note = f" (not installed: {', '.join(missing)})" if missing else ""
    return Part(f"Against peers, the same values{note}", ours, interleaved(candidates, rounds))


def _torchao(weight: torch.Tensor) -> Callable[[], object]:
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    def run() -> object:
        scale = per_tensor_amax_to_scale(weight.abs().amax())
        return NVFP4Tensor.to_nvfp4(weight, per_tensor_scale=scale).dequantize(torch.float32)

    return run


def _compressed_tensors(weight: torch.Tensor) -> Callable[[], object]:
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize as fake
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                            scale_dtype=torch.float8_e4m3fn)  # fmt: skip

    def run() -> object:
        blocks = weight.unflatten(-1, (-1, 16))
        low, high = blocks.amin(-1), blocks.amax(-1)
        divisor = generate_gparam(low.amin(), high.amax())
        scale, zero = calculate_qparams(low, high, args, global_scale=divisor)
        return fake(weight, scale, zero, args, global_scale=divisor)

    return run


def _load(rounds: int) -> Part:
    """Each in a process of its own, as a user would run it; imports are part of both."""
    path = embedded_path()
    ours, theirs = "fourge: load, quantise, export", "transformers: load alone"
    times: dict[str, list[float]] = {theirs: [], ours: []}
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "export")
        scripts = {
            theirs: _THEIRS.format(folder=str(path.parent), file=path.name),
            ours: _OURS.format(model=EMBEDDED, out=out),
        }
        for _ in range(rounds + 1):
            for name, script in scripts.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
                times[name].append(time.perf_counter() - start)
    return Part(
        "The embedded model, whole processes",
        theirs,
        {name: median(each[1:]) for name, each in times.items()},
    )
