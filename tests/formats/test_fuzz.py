"""Thousands of damaged files: each is read, or refused in words. Nothing else may happen.

Each format runs in a process of its own, which tells what happened as JSON. Mutant ``i`` of a
format depends on those two alone, so a failure names all that is needed to see it again:

    python -c "from tests.formats.test_fuzz import mutant; print(mutant('gguf', 123))"
"""

import json
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from types import FrameType
from typing import Any

import gguf
import pytest
import torch

from fourge.core.errors import FourgeError
from tests.formats.samples import KINDS, SUFFIX, Piece, build, pieces_of, read_everything

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MUTANTS = 8_000  # of each kind
MOST_MIB = 200  # of memory, beyond what the imports took
LONGEST_S = 10.0  # for one mutant; they take about a millisecond
HUGE = (1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
HUGE_TEXT = (b"0", b"-1", b"1.5", b"4294967296", b"9223372036854775807", b"9" * 25, b"9" * 5000)
DIMS = (0, 0, 1, 1, 2, 4, 8, 16, 32, 64, 128, 1 << 40, (1 << 63) - 1, 1 << 63)
# Values and bytes per block of some types: sound ones, wrong ones, and ones we do not decode.
SAFETENSORS = {"U8": 1, "BOOL": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8, "I64": 8}
DAT = {0: 1, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 10: 16, 11: 1, 15: 2, 100: 1, 101: 1}
SIZES: dict[str, dict[Any, tuple[int, int]]] = {
    "compressed-tensors": {kind: (1, nbytes) for kind, nbytes in SAFETENSORS.items()},
    "modelopt": {kind: (1, nbytes) for kind, nbytes in SAFETENSORS.items()},
    "gguf": {int(code): size for code, size in gguf.GGML_QUANT_SIZES.items()},
    "dat": {kind: (1, nbytes) for kind, nbytes in DAT.items()},
}
Mutation = Callable[[bytes, random.Random], bytes]


@dataclass
class Report:
    """What a format's process tells."""

    refused: int = 0
    accepted: int = 0
    grown_mib: float = 0.0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


# --- damage ------------------------------------------------------------------------------------


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def replace_byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(1) + data[at + 1 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randint(1, 16)) + data[at:]


def duplicate_chunk(data: bytes, rng: random.Random) -> bytes:
    begin, at = rng.randrange(len(data)), rng.randrange(len(data))
    return data[:at] + data[begin : begin + rng.randint(1, 200)] + data[at:]


def huge_number(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(HUGE).to_bytes(8, "little") + data[at + 8 :]


def endless_leb128(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((b"\x80", b"\xff")) * rng.randint(1, 12) + data[at:]


def huge_digits(data: bytes, rng: random.Random) -> bytes:
    """Another number in place of one written in digits."""
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    if not digits:
        return data
    at = rng.choice(digits)
    return data[:at] + rng.choice(HUGE_TEXT) + data[at + 1 :]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bit, replace_byte, truncate, insert, duplicate_chunk, huge_number, endless_leb128,
    huge_digits,
)  # fmt: skip


def mutant(kind: str, index: int) -> bytes:
    """Damaged file number ``index`` of a format: always the same."""
    rng = random.Random(f"{kind} {index}")
    if rng.random() < 0.4:
        return build(kind, contradicted(kind, rng))
    data = build(kind, pieces_of(kind))
    if kind in ("gguf", "dat") or rng.random() < 0.3:
        return damaged(data, rng)
    # A JSON header whose length is wrong says nothing; let its length follow the damage.
    end = 8 + int.from_bytes(data[:8], "little")
    header = damaged(data[8:end], rng)
    return len(header).to_bytes(8, "little") + header + data[end:]


def damaged(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(data, rng) if data else data
    return data


def contradicted(kind: str, rng: random.Random) -> dict[str, Piece]:
    """The pieces of a sound file, some of them of another type or shape, renamed or left out."""
    pieces = pieces_of(kind)
    for name in rng.sample(list(pieces), rng.randint(1, 3)):
        piece = pieces.pop(name)
        change = rng.random()
        if change < 0.1:
            name = rng.choice(list(pieces_of(kind)))
        if change < 0.9:
            pieces[name] = other_piece(kind, piece, rng)
    return pieces


def other_piece(kind: str, piece: Piece, rng: random.Random) -> Piece:
    sizes = SIZES[kind]
    new = rng.choice(list(sizes)) if rng.random() < 0.5 else piece.kind
    shape = piece.shape
    if rng.random() < 0.8:
        shape = tuple(rng.choice(DIMS) for _ in range(rng.randint(0, 4)))
    values, nbytes = sizes[new]
    fits = prod(shape) // values * nbytes
    return Piece(new, shape, rng.randbytes(fits) if fits < 10_000 else piece.data)


# --- a process per format ----------------------------------------------------------------------


def run(kind: str, count: int, path: Path) -> None:
    """Read the mutants of a format, and print a ``Report``."""
    report = Report()
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    signal.signal(signal.SIGALRM, _too_long)
    path.write_bytes(build(kind, pieces_of(kind)))
    read_everything(path)  # what is loaded at first use is not the mutants' doing
    before = _memory_mib("VmRSS")
    # An allocation that nobody writes to is not resident; this makes it fail all the same.
    limit = int(_memory_mib("VmSize") + 2 * MOST_MIB) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for index in range(count):
        _one(kind, index, path, report)
    report.grown_mib = _memory_mib("VmHWM") - before
    sys.stdout.write(json.dumps(asdict(report)))


def _one(kind: str, index: int, path: Path, report: Report) -> None:
    path.write_bytes(mutant(kind, index))
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        read_everything(path)
        report.accepted += 1
    except FourgeError as error:
        str(error).encode()  # it can be printed
        report.refused += 1
    except BaseException:
        report.failures.append(f"{kind} {index}\n{traceback.format_exc(limit=-4)}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        report.slowest_s = max(report.slowest_s, time.monotonic() - began)


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"a mutant took more than {LONGEST_S} s")


def _memory_mib(field: str) -> float:
    """A line of this process's status. ``ru_maxrss`` would include its parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def in_own_process(folder: Path, kind: str) -> Report:
    script = (
        "import sys; from pathlib import Path; from tests.formats.test_fuzz import run\n"
        "run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))"
    )
    command = [
        sys.executable,
        "-c",
        script,
        kind,
        str(MUTANTS),
        str(folder / f"{kind}{SUFFIX[kind]}"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{kind}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return Report(**json.loads(done.stdout))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("fuzz")
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(KINDS, pool.map(partial(in_own_process, folder), KINDS), strict=True))


# --- the tests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_file_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"sound{SUFFIX[kind]}"
    path.write_bytes(build(kind, pieces_of(kind)))
    read_everything(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused_in_words(reports: dict[str, Report], kind: str) -> None:
    failures = reports[kind].failures
    assert not failures, f"{len(failures)} mutants; the first:\n" + "\n".join(failures[:3])


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_sometimes_seen_and_sometimes_not(reports: dict[str, Report], kind: str) -> None:
    assert reports[kind].refused > MUTANTS // 10
    assert reports[kind].accepted > MUTANTS // 50


@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_makes_a_reader_take_memory_or_time(
    reports: dict[str, Report], kind: str
) -> None:
    assert reports[kind].grown_mib < MOST_MIB
    assert reports[kind].slowest_s < LONGEST_S


def test_there_were_twenty_thousand_mutants(reports: dict[str, Report]) -> None:
    read = sum(r.refused + r.accepted + len(r.failures) for r in reports.values())
    assert read == MUTANTS * len(KINDS) >= 20_000
