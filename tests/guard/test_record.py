import json
import os
from pathlib import Path
from typing import Any

import pytest

from fourge.guard import record as module
from fourge.guard.record import Record

MIB = 1 << 20


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_change_is_followed_by_the_minute_that_led_to_it(tmp_path: Path) -> None:
    record = Record(tmp_path / "log")
    record.open()
    began = record._began
    for number in range(20_000):  # 100 s of looks, 5 ms apart
        record.sample(began + number / 200, 5000 * MIB - number * MIB, 3000 * MIB - number * MIB)
    record.change("asked", reason="because", headroom=5)
    record.close()
    asked, minute = lines(tmp_path / "log")[-2:]
    assert (asked["kind"], asked["reason"], asked["headroom"]) == ("asked", "because", 5)
    looks = minute["looks"]
    seconds = [look[0] for look in looks]
    assert seconds == sorted(set(seconds))
    assert seconds[-1] == pytest.approx(99.995)
    assert 36 < seconds[0] < 42
    assert looks[-1][1:] == [5000 - 19_999, 3000 - 19_999]
    assert seconds[-1] - seconds[-100] == pytest.approx(0.495)  # the last moments whole
    assert len(json.dumps(minute)) < 20_000


def test_samples_cost_less_than_100_bytes_a_second(tmp_path: Path) -> None:
    record = Record(tmp_path / "log")
    record.open()
    for number in range(2000):
        record.sample(record._began + number / 20, 119 << 30, 111 << 30)
    record.close()
    samples = lines(tmp_path / "log")
    assert len(samples) == 100
    assert {line["kind"] for line in samples} == {"sample"}
    assert (tmp_path / "log").stat().st_size < 100 * 100


def test_every_line_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    monkeypatch.setattr(os, "fdatasync", lambda file: sizes.append(os.fstat(file).st_size))
    record = Record(tmp_path / "log")
    record.open()
    record.change("asked")
    record.change("killed")
    record.close()
    text = (tmp_path / "log").read_bytes()
    ends = [place + 1 for place, byte in enumerate(text) if byte == ord("\n")]
    assert sizes == ends


def test_a_log_that_exists_is_continued(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"kind":"before"}\n')
    record = Record(tmp_path / "log")
    record.open()
    record.change("start")
    record.close()
    assert [line["kind"] for line in lines(tmp_path / "log")] == ["before", "start"]


def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, into = os.pipe()
    monkeypatch.setattr(module, "_CLOSE_FOR_S", 0.05)
    monkeypatch.setattr(os, "fdatasync", lambda file: os.read(out, 1))
    record = Record(tmp_path / "log")
    record.open()
    record.change("asked")
    record.close()  # returns though the thread hangs
    os.close(into)  # the disk answers at last
    record._thread.join()
    os.close(out)
    assert [line["kind"] for line in lines(tmp_path / "log")] == ["asked"]


def test_a_terminal_that_takes_nothing_is_not_waited_for(
    capfd: pytest.CaptureFixture[str],
) -> None:
    kept, (out, into) = os.dup(2), os.pipe()
    os.set_blocking(into, False)
    while os.get_blocking(into) is False:
        try:
            os.write(into, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(into, True)
    os.dup2(into, 2)
    try:
        module._show("nobody reads this\n")  # would hang
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, out, into):
            os.close(descriptor)
    module._show("this is read\n")
    assert capfd.readouterr().err == "this is read\n"


def test_without_a_file_only_messages_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    record = Record(None)
    record.open()
    record.change("asked")
    record.say("hello")
    record.close()
    assert capfd.readouterr().err == "fourge guard: hello\n"
