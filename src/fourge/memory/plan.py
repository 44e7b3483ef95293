"""What a run will hold in memory, part by part and phase by phase, before anything is loaded.

A part is alive in some phases; a phase holds the parts that are alive in it; the peak is the
largest phase. Three sources, none of them a formula of our own about somebody else's memory:

* what stays (weights, codes, moments): asked of the classes that allocate it (``inventory.py``);
* what passes (activations, logits, gradients): the code itself, run on the meta device
  (``trace.py``);
* what no arithmetic knows (the interpreter and its libraries, the holes that the C library's heap
  keeps): measured, with defaults (``machine.py``).

"Working memory" of a phase is what the traced code holds at its highest beyond the parts that have
lines of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fourge.core.errors import PlanError
from fourge.core.units import size
from fourge.memory.heap import backward_holes, forward_holes
from fourge.memory.inventory import Inventory, take_inventory
from fourge.memory.machine import DEFAULT, Machine
from fourge.memory.sharded import Share, share_of
from fourge.memory.trace import Traced, trace
from fourge.memory.wanted import Wanted
from fourge.train.teacher import cache_nbytes

PHASES = ("load", "prepare", "forward", "head", "backward", "update")
STEP = PHASES[2:]
TOKENS = "data.max_tokens"


@dataclass(frozen=True, slots=True)
class Line:
    """A part, the setting that changes it, and the phases it is alive in."""

    part: str
    nbytes: int
    knob: str
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will hold, in bytes."""

    lines: tuple[Line, ...]
    weights: int  # parameters, in elements
    machine: str  # where the measured constants come from

    def of(self, phase: str) -> int:
        """All that is alive in a phase."""
        return sum(line.nbytes for line in self.lines if phase in line.phases)

    @property
    def phases(self) -> dict[str, int]:
        """What each phase holds, in their order."""
        return {phase: self.of(phase) for phase in PHASES}

    @property
    def peak_phase(self) -> str:
        """The phase that holds the most."""
        return max(PHASES, key=self.of)

    @property
    def peak(self) -> int:
        """What the largest phase holds."""
        return self.of(self.peak_phase)

    def require_fits(self, limit: int) -> None:
        """Raise unless the plan fits, naming the largest part of the peak and its setting.

        Raises:
            PlanError: more is needed than is allowed.
        """
        if self.peak <= limit:
            return
        at_peak = [line for line in self.lines if self.peak_phase in line.phases]
        worst = max(at_peak, key=lambda line: line.nbytes)
        raise PlanError(
            f"This run needs {size(self.peak)}; {size(limit)} is allowed.",
            why=f"the peak is in {self.peak_phase}; its largest part is {worst.part}, "
            f"{size(worst.nbytes)}",
            fix=f"change {worst.knob} (`fourge plan` lists what would fit), or raise memory.limit",
        )


def plan(wanted: Wanted, machine: Machine = DEFAULT) -> Plan:
    """The plan of a run. No weight is read and no device is touched."""
    inventory, traced = take_inventory(wanted), trace(wanted)
    lines = [*_around(wanted, machine)]
    if wanted.world_size == 1:
        lines += [*_staying(wanted, inventory), *_passing(wanted, inventory, traced, machine)]
    else:
        share = share_of(wanted, inventory)
        lines += [*_shared(wanted, inventory, share)]
        lines += [*_passing_of_rank(wanted, inventory, traced, share, machine)]
    kept = tuple(line for line in lines if line.nbytes > 0 and line.phases)
    return Plan(kept, inventory.weights, machine.source)


def _around(wanted: Wanted, machine: Machine) -> Iterator[Line]:
    # A packed master is made by the compiled kernels; otherwise forward is the first to use them.
    compiled = STEP if wanted.master != "nvfp4" else PHASES[1:]
    yield Line("interpreter and libraries", machine.libraries, "-", PHASES)
    yield Line("compiler and its kernels", machine.compiler, "-", compiled)
    if wanted.device == "cuda":
        yield Line("device context", machine.device_context, "model.device", PHASES)


def _staying(wanted: Wanted, inventory: Inventory) -> Iterator[Line]:
    packed = wanted.master == "nvfp4"
    ready = STEP if packed else PHASES[1:]
    master = inventory.total("master") + inventory.buffers
    if packed:
        yield Line("weights as loaded", inventory.loaded, "model.path", PHASES[:2])
    yield Line("loader, one tensor", wanted.loader, "model.path", ("load",))
    yield Line("master weights", master, "optim.master", STEP if packed else PHASES)
    yield Line("master residual", inventory.total("residual"), "optim.master", ready)
    yield Line("moments", inventory.total("moments"), "optim.moments", ready)
    yield Line("NVFP4 codes", inventory.total("codes"), "model.scheme", _with_codes(wanted))
    yield Line("decoded weight, one layer", inventory.decoded, "model.scheme", STEP)
    cached = cache_nbytes(wanted.taught_positions, wanted.top_k)
    yield Line("teacher cache", cached, "train.kl_top_k", PHASES[1:])


def _with_codes(wanted: Wanted) -> tuple[str, ...]:
    """With release a layer's codes go with its update, one by one from the backward pass on."""
    return ("forward", "head", "backward") if wanted.release else STEP


def _passing(
    wanted: Wanted, inventory: Inventory, traced: Traced, machine: Machine
) -> Iterator[Line]:
    logits = 4 * wanted.config.vocab_size * wanted.chunk
    gradient, everything = inventory.largest("gradient"), inventory.total("gradient")
    kept, at_head = traced.kept.total, gradient if wanted.last_layers is None else 0
    at_most = traced.blocks.highest(traced.embedding).total
    yield Line("activations kept", kept, "train.recompute", ("forward", "head", "backward"))
    yield Line("working memory, forward", traced.forward.total - kept, TOKENS, ("forward",))
    yield Line("chunk of logits", logits, "train.loss_chunk", ("head",))
    if wanted.release:
        yield Line("largest gradient", gradient, "model.path", ("head", "backward"))
    else:
        since = ("backward", "update") if wanted.accumulate == 1 else STEP
        yield Line("gradients", everything, "train.release", since)
        if wanted.accumulate == 1:
            yield Line("largest gradient", at_head, "model.path", ("head",))
    yield Line("working memory, head", traced.head.total - kept - logits - at_head, "model.path",
               ("head",))  # fmt: skip
    held = kept + (gradient if wanted.release else 0)
    if not wanted.release and wanted.accumulate == 1:
        held += everything  # traced with them
    yield Line("working memory, backward", at_most - held, TOKENS, ("backward",))
    scratch = inventory.largest("update_scratch")
    yield Line("optimizer scratch", scratch, "optim.chunk_rows", _updating(wanted))
    yield from _holes(wanted, inventory, traced, machine)


def _shared(wanted: Wanted, inventory: Inventory, share: Share) -> Iterator[Line]:
    """What stays, of one rank of several."""
    yield Line("weights as loaded", inventory.loaded, "model.path", PHASES[:2])
    yield Line("loader, one tensor", wanted.loader, "model.path", ("load",))
    yield Line("master weights, a share", share.master, "optim.master", STEP)
    yield Line("master residual, a share", share.residual, "optim.master", STEP)
    yield Line("moments, a share", share.moments, "optim.moments", STEP)
    yield Line("embedding and head, whole", share.ends, "model.path", STEP)
    yield Line("decoded weight, one layer", inventory.decoded, "model.scheme", STEP)
    cached = cache_nbytes(wanted.taught_positions, wanted.top_k)
    yield Line("teacher cache", cached, "train.kl_top_k", PHASES[1:])


def _passing_of_rank(
    wanted: Wanted, inventory: Inventory, traced: Traced, share: Share, machine: Machine
) -> Iterator[Line]:
    logits = 4 * wanted.config.vocab_size * wanted.chunk
    kept, at_head = traced.kept.total, inventory.largest("gradient")
    yield Line("activations kept", kept, "train.recompute", ("forward", "head", "backward"))
    yield Line("working memory, forward", traced.forward.total - kept, TOKENS, ("forward",))
    yield Line("a block, as sent", share.block, "model.scheme", ("forward", "head", "backward"))
    yield Line("a block, gathered", share.block, "model.scheme", ("forward", "backward"))
    yield Line("chunk of logits", logits, "train.loss_chunk", ("head",))
    yield Line("gradient of the head", share.head_gradient, "model.path", ("head", "backward"))
    if wanted.last_layers is not None:
        at_head = 0
    yield Line("working memory, head", traced.head.total - kept - logits - at_head, "model.path",
               ("head",))  # fmt: skip
    inside = traced.blocks.total - kept + share.block_gradients + share.block_sum
    yield Line("gradients and their sum", max(inside, share.ends_sum), TOKENS, ("backward",))
    if not wanted.release:
        since = ("backward", "update") if wanted.accumulate == 1 else STEP
        yield Line("gradients, a share", share.gradients, "train.release", since)
    scratch = inventory.largest("update_scratch")
    yield Line("optimizer scratch", scratch, "optim.chunk_rows", _updating(wanted))
    yield from _holes(wanted, inventory, traced, machine)


def _holes(
    wanted: Wanted, inventory: Inventory, traced: Traced, machine: Machine
) -> Iterator[Line]:
    if wanted.device == "cpu":
        forward = int(machine.holes * forward_holes(wanted, traced))
        yield Line("heap's holes, forward", forward, TOKENS, ("forward",))
        backward = int(machine.holes * backward_holes(wanted, traced, inventory))
        yield Line("heap's holes, backward", backward, TOKENS, _after(wanted))


def _after(wanted: Wanted) -> tuple[str, ...]:
    return ("backward",) if wanted.release else ("backward", "update")


def _updating(wanted: Wanted) -> tuple[str, ...]:
    return ("backward",) if wanted.release else ("update",)
