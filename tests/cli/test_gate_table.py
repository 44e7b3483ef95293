from io import StringIO

from rich.console import Console

from fourge.cli.gate_table import show_base, show_gates
from fourge.evaluate.verdict import Gate, gate_of_numbers, gate_of_rights


def shown(*gates: Gate) -> list[str]:
    text = StringIO()
    show_gates(gates, Console(file=text, width=80))
    return text.getvalue().splitlines()


def test_columns_stand_below_each_other_however_long_a_name_is() -> None:
    gates = [gate_of_rights(name, [True] * 99, [True] * 99, 0.05) for name in ("a", "b" * 25)]
    head, one, _, two, _ = shown(*gates)
    assert head.index("verdict") == one.index("pass") == two.index("pass")
    assert max(map(len, (head, one, two))) <= 80


def test_shares_are_percent_and_other_numbers_are_not() -> None:
    share = gate_of_rights("abilities", [True, False] * 9, [True, False] * 9, 0.05)
    number = gate_of_numbers("task f1", [0.25] * 30, [0.5] * 30, 0.05)
    _, one, _, two, note = shown(share, number)
    assert one.split()[:4] == ["abilities", "18", "50.0%", "50.0%"]
    assert two.split()[:5] == ["task", "f1", "30", "0.25", "0.50"]
    assert note.strip().startswith("+0.2500")


def test_a_gate_that_no_answers_could_pass_is_named_before_anything_is_taught() -> None:
    text = StringIO()
    few, enough = (Gate("separation", items, 1.0, 1.0, ">= 95%", "pass") for items in (30, 60))
    show_base([few, enough], Console(file=text, width=80))
    _, _, note, last = text.getvalue().splitlines()
    assert note.startswith("  30 items cannot show 95%; 59 could; give more languages")
    assert last.startswith("separation       60")
