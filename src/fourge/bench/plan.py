"""``fourge bench plan``: the plan against the truth.

Each configuration is planned, with and without this machine's calibration, and then run: two
steps of ``fourge step`` with random weights in a process of their own, whose highest resident
memory (the kernel's VmHWM) is the truth. One at a time, and only where it fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fourge.core.units import size
from fourge.harness.planning import wanted_of_model
from fourge.memory.calibrate import measure_step
from fourge.memory.limit import machine_limit
from fourge.memory.machine import DEFAULT, this_machine
from fourge.memory.plan import plan
from fourge.model.embedded import EMBEDDED

SMALL, MIDDLE, BIG = EMBEDDED, "qwen3-0.6b", "qwen3-1.7b"


def _case(model: str, tokens: int, master: str, moments: str, recompute: str, **more: Any) -> Any:
    settings = {"tokens": tokens, "master": master, "moments": moments, "recompute": recompute}
    return model, {**settings, **more}


CASES = (
    _case(SMALL, 64, "bf16", "int8", "block"),
    _case(SMALL, 512, "bf16", "int8", "none"),
    _case(SMALL, 256, "fp32", "fp32", "light"),
    _case(SMALL, 256, "nvfp4", "nvfp4", "none", batch=4),
    _case(SMALL, 1024, "bf16+8", "int8", "block"),
    _case(SMALL, 128, "bf16", "fp32", "block", scheme="none", release=False),
    _case(MIDDLE, 64, "bf16", "int8", "block"),
    _case(MIDDLE, 512, "bf16+8", "nvfp4", "block"),
    _case(MIDDLE, 256, "nvfp4", "int8", "light"),
    _case(MIDDLE, 128, "fp32", "int8", "block"),
    _case(MIDDLE, 128, "bf16", "fp32", "none"),
    _case(MIDDLE, 64, "bf16+8", "fp32", "light"),
    _case(BIG, 64, "bf16", "int8", "block"),
    _case(BIG, 128, "nvfp4", "nvfp4", "light"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """Bytes. ``measured`` is None where the machine had no room for the run."""

    model: str
    settings: dict[str, Any]
    plain: int  # planned with the defaults
    calibrated: int
    measured: int | None

    def row(self) -> str:
        s = self.settings
        extra = "" if s.get("release", True) else " no release"
        what = f"{self.model:<13} {s.get('batch', 1)}x{s['tokens']:<5} {s['master']:<7} "
        what += f"{s['moments']:<6} {s['recompute']:<6}{extra}"
        if self.measured is None:
            return f"{what:<46} {size(self.calibrated):>9}  not run: too little memory"
        return (
            f"{what:<46} {size(self.plain):>9} {self.plain / self.measured - 1:>+6.1%} "
            f"{size(self.calibrated):>9} {self.calibrated / self.measured - 1:>+6.1%} "
            f"{size(self.measured):>9}"
        )


def compare() -> Iterator[Compared]:
    """Every case, as it is measured."""
    for model, settings in CASES:
        wanted = wanted_of_model(model, device="cpu", **settings)
        plain, calibrated = plan(wanted, DEFAULT).peak, plan(wanted, this_machine()).peak
        measured = None
        if calibrated < machine_limit().nbytes:
            measured = max(phase["peak"] for phase in measure_step(model, **settings))
        yield Compared(model, settings, plain, calibrated, measured)
