"""The fast form of a stage is the same function under ``torch.compile``.

On the CPU that is generated C++ (a compiler is needed), on CUDA Triton. The first axis of every
stage is the number of blocks and is compiled as a variable, so one kernel serves every shape;
the other axes are constants, so the inner loops vectorise. Tests hold each compiled stage to
the plain one bit for bit.

A kernel is generated for the size it first meets: on a handful of blocks it would be a single
thread for ever. Fewer than ``SMALL`` blocks therefore run the plain function, which at that
size costs no more than the call.

Without a compiler the plain functions run, some ten times slower, and one line says so.
"""

import functools
import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import Tensor

SMALL = 1 << 11  # blocks
R = TypeVar("R")

logger = logging.getLogger(__name__)


def compiled(stage: Callable[..., R], *, small: int = SMALL) -> Callable[..., R]:
    """The stage, compiled when it first meets a device and dtype.

    ``small`` is for stages whose blocks are not NVFP4's 16 values.
    """

    @functools.wraps(stage)
    def call(*args: Tensor) -> R:
        if len(args[0]) < small or not _can_compile(args[0].device.type):
            return stage(*args)
        for arg in args:
            if arg.dim():
                torch._dynamo.maybe_mark_dynamic(arg, 0)
        kernel: Callable[..., R] = _compile(stage, torch.get_num_threads())
        return kernel(*args)

    return call


@functools.cache
def _compile(stage: Callable[..., R], threads: int) -> Callable[..., R]:
    # Named in the options, the thread count becomes part of the key of torch's cache on disk;
    # otherwise a kernel made for one thread is found there again when there are more.
    # Variants (dtype, device, thread count, gradients on or off) are few but more than torch's 8.
    kernel: Callable[..., R] = torch.compile(  # type: ignore[call-overload]
        stage,
        fullgraph=True,
        recompile_limit=64,
        isolate_recompiles=True,
        options={"cpp.threads": threads},
    )
    return kernel


def cpp_compiler() -> str:
    """The compiler that torch would use; empty if it finds none."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return str(get_cpp_compiler())
    except Exception:  # it raises what its search met, by kinds that are not public
        return ""


def has_cpp_compiler() -> bool:
    """Whether torch finds the compiler that it would use."""
    return bool(cpp_compiler())


@functools.cache
def _can_compile(device: str) -> bool:
    if torch._dynamo.config.disable:
        return False  # TORCH_COMPILE_DISABLE, torch's own switch
    if device == "cpu":
        found = has_cpp_compiler()
        needed = "a C++ compiler (g++)"
    else:
        found = find_spec("triton") is not None
        needed = "the triton package"
    if not found:
        logger.warning(
            "NVFP4 kernels run uncompiled on %s, about 10 x slower: %s is missing", device, needed
        )
    return found
