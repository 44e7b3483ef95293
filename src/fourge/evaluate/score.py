"""Why an answer fails its probe, if it does: pure rules on a text, the same for base and tuned."""

from dataclasses import dataclass

from fourge.data.names import OLD_NAMES, claimed, foreign, says
from fourge.evaluate.answers import Said
from fourge.evaluate.degenerate import fault
from fourge.evaluate.probes import Probe


@dataclass(frozen=True, slots=True)
class Names:
    """The name that was taught, and those that must no longer be claimed."""

    new: str
    maker: str = ""
    old: tuple[str, ...] = OLD_NAMES

    def rivals(self) -> tuple[str, ...]:
        return foreign(self.old, self.new, self.maker)


def failing(probe: Probe, said: Said, names: Names | None) -> str | None:
    """Why an answer does not pass; nothing if it does.

    Raises:
        ValueError: the set is about a name, and none is given.
    """
    if probe.set == "abilities":
        known = any(says(said.text, answer) for answer in probe.accepted)
        return None if known else f"{' or '.join(probe.accepted)} is missing"
    if probe.set == "degeneration":
        return fault(probe, said)
    if names is None:
        raise ValueError(f"the set {probe.set!r} needs a name")
    if probe.set == "identity":
        return _identity(said.text, names)
    return f"{names.new} is said" if says(said.text, names.new) else None


def _identity(text: str, names: Names) -> str | None:
    if (other := claimed(text, names.rivals())) is not None:
        return f"{other} is claimed"
    return None if says(text, names.new) else f"{names.new} is missing"
