"""The gates of a verdict as a table of 80 columns."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from fourge.evaluate.verdict import Gate


def show_gates(gates: "Iterable[Gate]", console: Console) -> None:
    """Base and tuned, what is needed, and the decision; below it what else is to be said."""
    gates = list(gates)
    width = max([13, *(len(gate.name) for gate in gates)])
    head = f"{'gate':<{width}} {'items':>5} {'base':>7} {'tuned':>7}  {'needed':<19} verdict"
    console.print(head, soft_wrap=True)
    for gate in gates:
        console.print(f"{gate.name:<{width}} {gate.items:>5} {_number(gate, gate.base):>7} "
                      f"{_number(gate, gate.tuned):>7}  {gate.needed:<19} {gate.decision}",
                      soft_wrap=True)  # fmt: skip
        if gate.note:
            console.print(f"  {gate.note}", markup=False)


def show_base(gates: "Iterable[Gate]", console: Console) -> None:
    """The base alone: where every gate stands before anything is taught."""
    from fourge.evaluate.verdict import too_few_for

    console.print(f"{'gate':<13} {'items':>5} {'base':>7}  needed later")
    for gate in gates:
        console.print(f"{gate.name:<13} {gate.items:>5} {_number(gate, gate.base):>7}  "
                      f"{gate.needed}", soft_wrap=True)  # fmt: skip
        if too_few := too_few_for(gate):
            console.print(f"  {too_few}; give more languages", markup=False)


def _number(gate: "Gate", value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if gate.needed.endswith("%") else f"{value:.2f}"
