"""From base to export."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from fourge.report.lineage import Node, _graph, _places, _short, lineage, nodes_of
from fourge.report.record import read_records
from tests.report.example import event, write_lines, write_run


def test_a_run_has_a_lineage_without_being_told(tmp_path: Path) -> None:
    records = read_records(write_run(tmp_path / "身份", 4))
    nodes = nodes_of(records)
    assert [(node.role, node.name) for node in nodes] == [
        ("base model", "smollm2-135m"), ("data", "training data"), ("run", "身份"),
        ("checkpoint", "step 2"), ("export", "export")]  # fmt: skip
    known = {node.id for node in nodes}
    assert all(set(node.parents) <= known for node in nodes)
    assert nodes[2].parents == (nodes[0].id, nodes[1].id)
    assert nodes[4].parents == (nodes[3].id,)


def artifact(**values: Any) -> dict[str, Any]:
    return event("artifact", **values)


def test_artifacts_that_were_recorded_are_the_graph(tmp_path: Path) -> None:
    write_lines(tmp_path / "events.jsonl", [
        artifact(id="a", name="base", role="base", nbytes=1 << 30),
        artifact(id="b", name="階段一", role="stage", parents=["a"]),
        artifact(id="c", path="/x/<export>", parents=["b", "gone"]),
    ])  # fmt: skip
    text = lineage(read_records(tmp_path))
    assert "1 GiB" in text
    assert "階段一" in text
    assert "<export>" not in text
    assert "gone" in text


def test_an_experiment_names_the_one_parent_and_the_purpose(tmp_path: Path) -> None:
    write_lines(tmp_path / "events.jsonl", [
        artifact(name="start", purpose="start", parent="", digest="3e60"),
        artifact(name="01", purpose="attempt", parent="start"),
        artifact(name="01", purpose="attempt", parent="start", reason="no share passes"),
    ])  # fmt: skip
    one, two = nodes_of(read_records(tmp_path))
    assert (one.role, one.parents, one.note) == ("start", (), "3e60")
    assert (two.role, two.parents, two.note) == ("attempt", ("start",), "no share passes")


def test_nothing_known_is_nothing_shown(tmp_path: Path) -> None:
    write_lines(tmp_path / "events.jsonl", [event("verdict", gates=[])])
    assert lineage(read_records(tmp_path)) == ""


@given(st.lists(st.tuples(st.integers(0, 8), st.lists(st.integers(0, 8), max_size=3)), min_size=1))
def test_a_node_stands_below_its_parents_and_cycles_end(edges: list[tuple[int, list[int]]]) -> None:
    nodes = {str(id): Node(str(id), "n", "r", tuple(map(str, parents))) for id, parents in edges}
    places = _places(list(nodes.values()))
    assert len(set(places.values())) == len(nodes)
    acyclic = all(parent < id for id, parents in edges for parent in parents)
    for node in nodes.values():
        for parent in node.parents:
            if acyclic and parent in places:
                assert places[parent][0] < places[node.id][0]


def test_rows_go_down_from_the_base_by_the_longest_way() -> None:
    ways = {"base": (), "data": (), "run": ("base", "data"), "export": ("run", "base")}
    nodes = [Node(id, id, "", parents) for id, parents in ways.items()]
    assert _places(nodes) == {"base": (0, 0), "data": (0, 1), "run": (1, 0), "export": (2, 0)}


def test_the_graph_has_a_box_a_node_and_an_arrow_an_edge() -> None:
    root = ElementTree.fromstring(_graph([Node("a", "A", "base"), Node("b", "B", "x", ("a", "z"))]))
    assert len(list(root.iter("rect"))) == 2
    assert len([path for path in root.iter("path") if path.get("class") == "head"]) == 1


def test_a_name_too_long_for_its_box_is_cut() -> None:
    assert _short("a" * 24) == "a" * 24
    assert _short("a" * 25).endswith("...")
    assert len(_short("誰" * 30)) < 16
