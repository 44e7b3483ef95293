from pathlib import Path
from typing import Any

import pytest

from fourge.core.errors import FormatError
from fourge.core.events import FILE, EventLog
from fourge.data.shipped import shipped
from fourge.harness.devlog import ALL_PASS, NONE_PASSES, write_devlog
from fourge.harness.served import SERVER

LANGUAGES = ("en", "zh-TW")
EVENTS: list[dict[str, Any]] = [
    {"kind": "begun", "version": "0.1.0", "code": "c0de", "config": "c0f", "settings": "x: 1",
     "command": ["fourge", "experiment", "e.yaml"]},
    {"kind": "artifact", "name": "start", "path": "m", "parent": "", "purpose": "start",
     "digest": "d1"},
    {"kind": "attempt", "name": "01", "settings": [], "config": "c"},
    {"kind": "attempt", "name": "02", "settings": ["optim.lr=1e-5"], "config": "c"},
    {"kind": "look", "name": "01", "step": 25, "passed": False, "reason": "identity 0.0%",
     "collapsed": "leak 40.0%", "numbers": {}},
    {"kind": "look", "name": "01", "step": 50, "passed": True, "reason": "", "collapsed": "",
     "numbers": {}},
    {"kind": "artifact", "name": "01", "path": "a", "parent": "start", "purpose": "attempt",
     "digest": "d2"},
    {"kind": "trained", "name": "01", "step": 50, "reason": "", "whole": False},
    {"kind": "went on", "name": "01", "step": 50},
    {"kind": "verdict", "name": "01", "of": "gates", "passed": False, "reason": "a|b",
     "numbers": {}},
    {"kind": "moved", "name": "01", "source": "a", "target": "t", "reason": NONE_PASSES,
     "note": "n"},
    {"kind": "something else"},
    {"kind": "ended", "passed": False, "stopped": 0},
    {"kind": "ended", "passed": True, "stopped": 0},
    {"kind": "ended", "passed": False, "stopped": 15},
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = EventLog(tmp_path / FILE, "x")
    for event in EVENTS:
        log.write(event["kind"], **{name: v for name, v in event.items() if name != "kind"})
    return tmp_path


def test_every_event_is_a_line_in_english(folder: Path) -> None:
    write_devlog(folder)
    lines = (folder / "devlog.md").read_text().splitlines()
    said = [line.partition("Z ")[2] for line in lines[2:]]
    assert lines[0] == "# What happened"
    assert said == [
        "begun by fourge 0.1.0 (code `c0de`, settings `c0f`): `fourge experiment e.yaml`",
        "made **start**, the clean weights: `d1`",
        "attempt **01** from the clean weights: as the file says",
        "attempt **02** from the clean weights: optim.lr=1e-5",
        "**01**, look at step 25: leak 40.0%",
        "**01**, look at step 50: nothing speaks against it",
        "made **01**, trained weights: `d2`",
        "**01** is trained to step 50: the scan decides",
        "**01** is trained on from step 50",
        "**01**, the full gates: a|b",
        "**01** moved to `t`: no share passes",
        "ended: no attempt passed",
        "ended: an export passed every gate",
        "ended: stopped by signal 15; it can go on",
    ]
    table = (folder / "artifacts.md").read_text().splitlines()
    assert table[-2:] == [
        "| start | the clean weights |  | `d1` |  | `m` |",
        "| 01 | trained weights | start | `d2` | failed: no share passes | `t` |",
    ]


def test_the_same_in_chinese_and_again_at_any_time(folder: Path) -> None:
    write_devlog(folder)
    write_devlog(folder, "zh-TW")
    text = (folder / "devlog.md").read_text(encoding="utf-8")
    assert "第 25 步抽查：leak 40.0%" in text
    assert "任何比例都沒有通過" in text
    table = (folder / "artifacts.md").read_text(encoding="utf-8")
    assert "| 01 | 訓練後的權重 | start | `d2` | 未通過: 任何比例都沒有通過 | `t` |" in table


def test_every_sentence_is_there_in_every_language_with_the_same_slots() -> None:
    texts = shipped("fourge.harness", "devlog.yaml")
    assert set(texts) == set(LANGUAGES)
    english, chinese = texts["en"], texts["zh-TW"]
    assert set(chinese) - set(english) == {NONE_PASSES, ALL_PASS}  # which are English already
    assert set(english) <= set(chinese)
    for name, sentence in english.items():
        slots = sorted(word.split("}")[0] for word in sentence.split("{")[1:])
        assert slots == sorted(w.split("}")[0] for w in chinese[name].split("{")[1:]), name


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        write_devlog(tmp_path)


def test_what_a_verdict_is_of_has_a_name_in_every_language() -> None:
    for language in LANGUAGES:
        texts = shipped("fourge.harness", "devlog.yaml")[language]
        assert all(texts[f"of {kind}"] for kind in ("look", "gates", SERVER))
