"""``fourge report``."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from fourge.cli import report as module
from fourge.cli.report import report
from fourge.core.errors import ConfigError, FormatError, OutputError
from tests.report.example import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "身份", 6)


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(report, [str(each) for each in args], catch_exceptions=False)


def test_the_page_is_put_beside_the_record_and_replaced(run: Path) -> None:
    for _ in range(2):
        result = call(run)
        assert result.exit_code == 0
        assert result.stdout.strip() == str(run / "report.html")
    assert "<h1>身份</h1>" in (run / "report.html").read_text(encoding="utf-8")


def test_a_page_elsewhere_is_not_overwritten_unasked(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    call(run, "-o", page)
    with (
        pytest.raises(OutputError, match="exists"),
        patch("fourge.report.page.page", side_effect=AssertionError("refused before it is drawn")),
    ):
        call(run, "-o", page)
    assert call(run, "-o", page, "--overwrite").exit_code == 0


def test_a_dash_is_stdout(run: Path) -> None:
    result = call(run, "-o", "-")
    assert result.stdout.startswith("<!doctype html>")
    assert not (run / "report.html").exists()


def test_runs_are_compared_on_one_page(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "slow", 6, lr=1e-5)
    assert "2 runs compared" in call("--compare", run, other, "-o", "-").stdout


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["R", "R"], "A page is of one run"),
        (["--compare", "R"], "A page is of one run"),
        (["--compare", "R", "R"], "A comparison belongs to no run"),
        (["R", "--live", "-o", "x"], "No page is written"),
        (["--compare", "R", "R", "--report-to", "wandb"], "One run is sent at a time"),
    ],
)
def test_what_has_two_meanings_is_refused(run: Path, args: Sequence[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        call(*(run if each == "R" else each for each in args))


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    for live in ([], ["--live"]):
        with pytest.raises(FormatError, match="has no record"):
            call(tmp_path, *live)


def test_a_missing_matplotlib_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'fourge\[pictures\]'"):
        call(run)


def test_a_tracker_is_sent_the_steps(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fourge.report.trackers.send", lambda folder, tracker, follow: 6)
    assert call(run, "--report-to", "wandb").stdout == "6 steps sent to wandb\n"


def test_live_says_where_serves_and_ends_on_an_interrupt(run: Path) -> None:
    command = [sys.executable, "-u", "-m", "fourge", "report", str(run), "--live"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as made:
        assert made.stdout is not None
        address = made.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert "身份" in answer.read().decode()
        assert os.getpriority(os.PRIO_PROCESS, made.pid) > os.getpriority(os.PRIO_PROCESS, 0), (
            "the run comes first"
        )
        made.send_signal(signal.SIGINT)
        assert made.wait(30) == 130
