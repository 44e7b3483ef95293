"""C++ kernels: compiled on the user's machine when first needed, and kept in the user's cache.

Plain C behind ``ctypes``, not a torch extension: it needs none of torch's headers, which compile
for a minute, and uses the OpenMP threads that torch has already. For processors with AVX2; where
torch uses AVX-512, kernels are compiled for it too.

On another processor there are none. Where they cannot be compiled there are none either, and a
line says so; whoever would call them takes the way of torch.
"""

import ctypes
import hashlib
import logging
import subprocess
from pathlib import Path

import torch
from torch import Tensor

from fourge.core.errors import FourgeError
from fourge.core.files import user_cache, whole_file
from fourge.nvfp4.compiled import cpp_compiler

# Products and sums stay two operations that round twice, as in torch; roots and roundings need
# not set errno or raise traps, which nobody reads, and can then be done by vectors.
_FLAGS = ("-O3", "-mavx2", "-mfma", "-fopenmp", "-fPIC", "-shared", "-ffp-contract=off",
          "-fno-math-errno", "-fno-trapping-math")  # fmt: skip
_WIDE = "-mavx512f"  # half the instructions, and the same sums
_ALONE = 1 << 16  # values below which a second thread costs more than it does

logger = logging.getLogger(__name__)


def library(source: Path) -> ctypes.CDLL | None:
    """The kernels of a C++ file and of what lies beside it; None where there are none."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return None
    try:
        return ctypes.CDLL(str(built(source)))
    except (FourgeError, OSError, subprocess.SubprocessError) as error:
        logger.warning("without its kernels this takes several times longer: %s", error)
        return None


def built(source: Path) -> Path:
    """The library: from the cache, or compiled now."""
    compiler = cpp_compiler()
    if not compiler:
        raise FileNotFoundError("a C++ compiler (g++) is missing")
    is_wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    command = [compiler, *_FLAGS, *([_WIDE] if is_wide else []), str(source)]
    key = hashlib.blake2b(" ".join(command).encode(), digest_size=8)
    for part in (source, *sorted(source.parent.glob("*.hpp"))):
        key.update(part.read_bytes())
    path = user_cache() / "kernels" / f"{source.parent.name}-{key.hexdigest()}.so"
    if not path.exists():
        with whole_file(path, overwrite=True) as temporary:
            subprocess.run([*command, "-o", str(temporary)], check=True, capture_output=True)
    return path


def has_memory(values: Tensor) -> bool:
    """Whether a kernel can be given the address of these: a tracer's stand-in has none."""
    return values.is_cpu and type(values) is Tensor and not torch.compiler.is_compiling()


def threads_for(values: int) -> int:
    """How many threads so many values are worth."""
    return torch.get_num_threads() if values >= _ALONE else 1
