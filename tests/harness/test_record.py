from pathlib import Path
from typing import Any

import pytest

from fourge.core.content import NOTE
from fourge.core.errors import FormatError, OutputError
from fourge.harness.record import Found, Move, Rest, carry_out, free_name, read_record

MADE: dict[str, Any] = {
    "kind": "artifact", "name": "01-share-1", "path": "/x/candidates/01-share-1",
    "parent": "01", "purpose": "candidate", "digest": "ab", "weights": "",
}  # fmt: skip
FAILED: dict[str, Any] = {
    "kind": "verdict", "name": "01-share-1", "of": "look", "passed": False,
    "reason": "identity", "numbers": {"identity": [0.0, 0.1, "fail"]},
}  # fmt: skip
ASIDE: dict[str, Any] = {
    "kind": "moved", "name": "01-share-1", "source": "/x/candidates/01-share-1",
    "target": "/x/trash/01-share-1-1", "reason": "identity", "note": "# why",
}  # fmt: skip
RESTS: dict[str, Any] = {
    "kind": "trained", "name": "01", "step": 50, "reason": "", "whole": False,
}  # fmt: skip


def test_events_lead_to_a_state() -> None:
    record = read_record([{"kind": "begun"}, MADE, FAILED, ASIDE, RESTS])
    (artifact,) = record.artifacts.values()
    assert (artifact.path, artifact.passed, artifact.reason) == (
        "/x/trash/01-share-1-1", False, "identity")  # fmt: skip
    assert record.found["01-share-1", "look"] == Found(False, "identity", FAILED["numbers"])
    assert record.aside == {"01-share-1"}
    assert record.rests == {"01": Rest(50, "", whole=False)}
    assert record.scanned == {}


def test_an_attempt_that_goes_on_rests_no_more_and_was_scanned_there() -> None:
    record = read_record([RESTS, {"kind": "went on", "name": "01", "step": 50}])
    assert record.rests == {}
    assert record.scanned == {"01": 50}


def test_the_last_of_a_name_counts_and_a_move_without_a_note_is_no_failure() -> None:
    passed = {**FAILED, "of": "gates", "passed": True, "reason": ""}
    shipped = {**ASIDE, "target": "/x/export", "note": ""}
    record = read_record([MADE, FAILED, passed, shipped])
    artifact = record.artifacts["01-share-1"]
    assert (artifact.path, artifact.passed, artifact.reason) == ("/x/export", True, "")
    assert record.aside == set()


def test_a_move_is_made_once_with_its_note_and_over_nothing(tmp_path: Path) -> None:
    source, trash = tmp_path / "a", tmp_path / "trash"
    source.mkdir()
    (source / "weights").write_text("w")
    move = Move("a", source, free_name(trash, "a"), "why\n")
    carry_out(move)
    carry_out(move)
    assert (trash / "a-1" / NOTE).read_text() == "why\n"
    assert (trash / "a-1" / "weights").read_text() == "w"
    assert free_name(trash, "a") == trash / "a-2"
    source.mkdir()
    with pytest.raises(OutputError, match="a-1 exists"):
        carry_out(move)
    assert (trash / "a-1" / "weights").read_text() == "w"


def test_what_is_shipped_has_no_note(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    carry_out(Move("a", tmp_path / "a", tmp_path / "export", ""))
    assert list((tmp_path / "export").iterdir()) == []


@pytest.mark.parametrize("event", [{**RESTS, "kind": "verdict"}, {"kind": "went on", "name": "x"},
                                   {"kind": "artifact", "name": "x"}, {}])  # fmt: skip
def test_an_event_of_another_version_is_named(event: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_record([event])
