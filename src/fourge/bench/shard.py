"""``fourge bench shard``: one step of a model on 1, 2 and 4 processes of this machine.

Memory of a rank and bytes that it sends, measured, against what ``fourge plan --world-size`` says;
and the same with weights that travel in bf16 (scheme ``none``). All ranks share the machine's
cores, so the seconds say nothing about speed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fourge.core.errors import CheckError
from fourge.core.units import size
from fourge.harness.planning import wanted_of_model
from fourge.memory.machine import this_machine
from fourge.memory.plan import STEP, plan
from fourge.memory.traffic import traffic


@dataclass(frozen=True, slots=True)
class Row:
    """What one rank took; of several, the most."""

    processes: int
    scheme: str
    peak: int
    planned: int
    sent: int
    planned_sent: int
    seconds: float

    def text(self) -> str:
        return (
            f"{self.processes:>9}  {self.scheme:<6} {size(self.peak):>9} {size(self.planned):>9} "
            f"{_ratio(self.planned, self.peak)} {size(self.sent):>9} {size(self.planned_sent):>9} "
            f"{_ratio(self.planned_sent, self.sent)}"
        )


HEADER = (
    f"{'processes':>9}  {'scheme':<6} {'a rank':>9} {'planned':>9} {'':>6} {'sends':>9} planned"
)


def compare(shape: str, sizes: tuple[int, ...], batch: int, tokens: int) -> Iterator[Row]:
    """Each number of processes with codes; two of them with bf16 too."""
    for processes in sizes:
        yield _row(shape, "w4a16", processes, batch, tokens)
        if processes == 2:
            yield _row(shape, "none", processes, batch, tokens)


def _row(shape: str, scheme: str, processes: int, batch: int, tokens: int) -> Row:
    found = _measured(shape, scheme, processes, batch, tokens)
    wanted = wanted_of_model(
        shape, device="cpu", tokens=tokens, batch=-(-batch // processes), scheme=scheme,
        world_size=processes,
    )  # fmt: skip
    made = plan(wanted, this_machine())
    return Row(
        processes, scheme, max(each["peak"] for each in found),
        max(made.of(phase) for phase in STEP), max(each["sent"] for each in found),
        traffic(wanted).total, max(each["seconds"] for each in found),
    )  # fmt: skip


def _measured(
    shape: str, scheme: str, processes: int, batch: int, tokens: int
) -> list[dict[str, Any]]:
    worker = ["-m", "fourge.bench.shard_worker", shape, scheme, str(batch), str(tokens)]
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(many if processes > 1 else []), *worker]
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": threads}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise CheckError(f"{processes} processes did not finish.", why=done.stderr[-500:])
    found: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _ratio(planned: int, measured: int) -> str:
    return f"{planned / measured - 1:>+6.1%}" if measured else f"{'-':>6}"
