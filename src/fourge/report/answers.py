"""Answers side by side, base and tuned, with the differences marked.

The unit of a difference is a word, or a single character where a script does not part words by
spaces (Chinese, Japanese, Thai): a change of one character there must not mark the sentence.
An answer that repeats itself without end takes difflib the cube of its length; its heuristic for
long texts, which leaves frequent pieces out, is what keeps a page of such answers quick.
"""

import re
from difflib import SequenceMatcher
from typing import Any

from fourge.report.gates import title_of
from fourge.report.markup import Markup, details, table, tag, together
from fourge.report.record import Event

SHOWN = 40  # answers in view; the rest behind a fold
_LONGEST = 4000  # characters of an answer that are compared
_PIECE = re.compile(r"[a-zA-Z0-9\u00c0-\u024f']+|\s+|.", re.DOTALL)


def marked(base: str, tuned: str) -> tuple[Markup, Markup]:
    """Both texts, with what only one of them has in <del> and <ins>."""
    one, two = _PIECE.findall(base[:_LONGEST]), _PIECE.findall(tuned[:_LONGEST])
    left, right = [], []
    for kind, a, b, c, d in SequenceMatcher(None, one, two).get_opcodes():
        before, after = "".join(one[a:b]), "".join(two[c:d])
        same = kind == "equal"
        left.append(before if same else tag("del", before) if before else "")
        right.append(after if same else tag("ins", after) if after else "")
    return together([*left, base[_LONGEST:]]), together([*right, tuned[_LONGEST:]])


def answers(event: Event, name: str) -> Markup:
    """The rows of one event; those that changed first."""
    rows = [_row(row) for row in _rows(event)]
    title = title_of("Answers", event)
    head = "prompt", "base", "tuned"
    parts = [table(head, rows[:SHOWN], title)]
    if rest := rows[SHOWN:]:
        parts.append(details(f"{name}-rest", f"{len(rest)} more", table(head, rest, title)))
    return tag("div", *parts, class_="answers")


def _rows(event: Event) -> list[dict[str, Any]]:
    rows = event.get("rows", [event])
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return sorted(found, key=lambda row: row.get("base") == row.get("tuned"))


def _row(row: dict[str, Any]) -> tuple[str, Markup, Markup]:
    texts = (str(row.get(key) or "") for key in ("base", "tuned"))
    return str(row.get("prompt", "")), *marked(*texts)
