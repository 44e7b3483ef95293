"""Where the files come from: a graph from the base model to the export.

Its nodes are ``artifact`` events. A run that wrote none still has a lineage: the base model and
the data, the run, its checkpoints (the last few), its export. Each node stands one row below the
lowest of its parents; within a row, in the order in which they came.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fourge.core.units import size
from fourge.report.markup import Markup, table, tag
from fourge.report.record import Event, Record, number

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 190, 46, 16, 34  # of a node, and between them
_LONGEST = 24  # characters of a name that fit; a Chinese one takes two
_CHECKPOINTS = 3


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    name: str
    role: str
    parents: tuple[str, ...] = ()
    note: str = ""


def nodes_of(records: Sequence[Record]) -> list[Node]:
    """Of the artifacts that were recorded; else of what each run says of itself."""
    told = [_told(event) for record in records for event in record.of("artifact")]
    if told:
        return list({node.id: node for node in told}.values())
    own = [node for at, record in enumerate(records) for node in _own(record, f"run{at}")]
    return list({node.id: node for node in own}.values())


def _told(event: Event) -> Node:
    parents, one = event.get("parents"), event.get("parent")
    above = parents if isinstance(parents, list) else [one] if one else []
    notes = [str(event[key]) for key in ("path", "digest", "reason", "note") if event.get(key)]
    if math.isfinite(nbytes := number(event.get("nbytes"))):
        notes.append(size(int(nbytes)))
    name = str(event.get("name") or event.get("path") or event.get("id"))
    role = str(event.get("purpose") or event.get("role") or "artifact")
    return Node(str(event.get("id") or name), name, role, tuple(map(str, above)), ", ".join(notes))


def _own(record: Record, prefix: str) -> list[Node]:
    started = record.last("started")
    if not started:
        return []
    settings = record.settings()
    model = settings.get("model")
    base = str(model.get("path")) if isinstance(model, dict) else "base model"
    base_id, data_id = (f"{key}:{started.get(key, prefix)}" for key in ("base", "data"))
    nodes = [
        Node(base_id, base.rsplit("/", 1)[-1], "base model", (), f"digest {started.get('base')}"),
        Node(data_id, "training data", "data", (), f"digest {started.get('data')}"),
        Node(prefix, record.name, "run", (base_id, data_id), f"run {started.get('run')}"),
    ]
    saved = {event.get("step"): event for event in record.of("saved")}
    for step, event in list(saved.items())[-_CHECKPOINTS:]:
        nodes.append(Node(f"{prefix}:{step}", f"step {step}", "checkpoint", (prefix,),
                          str(event.get("path", ""))))  # fmt: skip
    if export := record.last("finished").get("export"):
        parent = nodes[-1].id if saved else prefix
        nodes.append(Node(f"{prefix}:export", str(export).rsplit("/", 1)[-1], "export",
                          (parent,), str(export)))  # fmt: skip
    return nodes


def lineage(records: Sequence[Record]) -> Markup:
    """The graph, and the same as a table; nothing if nothing is known."""
    nodes = nodes_of(records)
    if not nodes:
        return Markup("")
    names = {node.id: node.name for node in nodes}
    rows = [
        (node.name, node.role, ", ".join(names.get(id, id) for id in node.parents), node.note)
        for node in nodes
    ]
    head = "name", "what", "from", "where"
    return tag("div", _graph(nodes), table(head, rows, "Lineage"))


def _places(nodes: Sequence[Node]) -> dict[str, tuple[int, int]]:
    """Of each node: its row, and where it stands in it."""
    by_id = {node.id: node for node in nodes}
    depth: dict[str, int] = {}

    def depth_of(id: str, seen: frozenset[str]) -> int:
        if id not in depth:
            above = [p for p in by_id[id].parents if p in by_id and p not in seen]
            depth[id] = 1 + max((depth_of(p, seen | {id}) for p in above), default=-1)
        return depth[id]

    row_counts: dict[int, int] = {}
    places = {}
    for node in nodes:
        row = depth_of(node.id, frozenset({node.id}))
        places[node.id] = row, row_counts.get(row, 0)
        row_counts[row] = row_counts.get(row, 0) + 1
    return places


def _graph(nodes: Sequence[Node]) -> Markup:
    places = _places(nodes)
    corner = {
        id: (column * (_WIDTH + _GAP_X) + 1, row * (_HEIGHT + _GAP_Y) + 1)
        for id, (row, column) in places.items()
    }
    edges = [
        _edge(corner[parent], corner[node.id])
        for node in nodes
        for parent in node.parents
        if parent in corner
    ]
    boxes = [_box(node, *corner[node.id]) for node in nodes]
    width = max(x for x, _ in corner.values()) + _WIDTH + 1
    height = max(y for _, y in corner.values()) + _HEIGHT + 1
    drawing = tag("svg", tag("title", "Lineage, from base to export"), *edges, *boxes,
                  viewBox=f"0 0 {width} {height}", width=str(width), height=str(height),
                  role="img", class_="graph")  # fmt: skip
    return tag("div", drawing, class_="scroll", tabindex="0", role="region", aria_label="Lineage")


def _edge(above: tuple[int, int], below: tuple[int, int]) -> Markup:
    x1, y1 = above[0] + _WIDTH // 2, above[1] + _HEIGHT
    x2, y2 = below[0] + _WIDTH // 2, below[1]
    bend = f"M {x1} {y1} C {x1} {y1 + 20} {x2} {y2 - 20} {x2} {y2 - 5}"
    return tag("g", tag("path", d=bend), tag("path", d=f"M {x2 - 4} {y2 - 6} l 4 6 l 4 -6",
               class_="head"))  # fmt: skip


def _box(node: Node, x: int, y: int) -> Markup:
    return tag(
        "g",
        tag("title", f"{node.role}: {node.name} {node.note}"),
        tag("rect", x=str(x), y=str(y), width=str(_WIDTH), height=str(_HEIGHT), rx="5"),
        tag("text", node.role, x=str(x + 9), y=str(y + 17), class_="role"),
        tag("text", _short(node.name), x=str(x + 9), y=str(y + 36)),
    )


def _short(name: str) -> str:
    """What fits into a box: a character beyond Latin is twice as wide."""
    used = 0
    for at, character in enumerate(name):
        used += 2 if ord(character) > 0x2E7F else 1
        if used > _LONGEST:
            return name[: max(1, at - 1)] + "..."
    return name
