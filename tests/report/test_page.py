"""One file that needs nothing else."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourge.report.markup import Markup
from fourge.report.page import document, page
from fourge.report.record import read_records
from tests.report.example import event, started, write_lines, write_run
from tests.report.test_markup import read
from tests.report.test_record import JSON

VOID = {"meta"}


class Balance(HTMLParser):
    """Fails where an element is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(read_records(write_run(tmp_path_factory.mktemp("x") / "身份", 20)))


def test_it_is_sound_html_with_ids_that_are_unique(text: str) -> None:
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert len(balance.ids) == len(set(balance.ids))


def test_the_verdict_comes_first_and_every_part_is_there(text: str) -> None:
    titles = re.findall("<h2[^>]*>([^<]*)</h2>", text)
    assert titles == ["Gates", "Answers", "Training", "Memory", "Data", "What happened", "Origin",
                      "Lineage"]  # fmt: skip
    assert text.index("3 of 3 gates passed") < text.index("<h2")
    assert text.index("<h1>身份</h1>") < text.index("<h2")


def test_it_may_not_and_does_not_ask_for_anything(text: str) -> None:
    assert "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'" in text
    assert not re.search(r"https?://|<script|<link|<img|<iframe|@import|url\((?!#)|\bon\w+=", text)


def test_parts_without_events_are_left_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "events.jsonl", [started(5)])
    titles = re.findall("<h2[^>]*>([^<]*)</h2>", page(read_records(tmp_path)))
    assert titles == ["Data", "What happened", "Origin", "Lineage"]


def test_an_experiment_shows_each_of_its_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "one", 4, judged=False)
    write_run(tmp_path / "two", 4, judged=False)
    text = page(read_records(tmp_path))
    assert "Training of one" in text
    assert "Training of two" in text
    assert re.findall("<h1>([^<]*)</h1>", text) == ["one", "two"]
    balance = Balance()
    balance.feed(text)
    assert len(balance.ids) == len(set(balance.ids))


def test_gates_of_all_items_are_in_view_and_samples_behind_a_fold(tmp_path: Path) -> None:
    kinds = (("first", "look"), ("second", "gates"), ("third", "transformers"))
    lines = [event("verdict", name=name, of=of, gates=[{"name": "g", "decision": "fail"}])
             for name, of in kinds]  # fmt: skip
    write_lines(tmp_path / "events.jsonl", lines)
    text = page(read_records(tmp_path))
    order = ["Gates: second, gates", "2 others", "Gates: third", "A sample", "Gates: first"]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert text.count("nothing in it speaks against") == 2


def test_the_last_verdict_is_in_view_and_earlier_ones_behind_a_fold(tmp_path: Path) -> None:
    lines = [event("verdict", name=name, gates=[{"name": "g", "decision": "fail"}])
             for name in ("first", "second", "third")]  # fmt: skip
    write_lines(tmp_path / "events.jsonl", lines)
    text = page(read_records(tmp_path))
    order = ["Gates: third", "2 others", "Gates: second", "Gates: first"]
    places = [text.index(each) for each in order]
    assert places == sorted(places)


def test_a_comparison_has_a_row_a_run_and_one_set_of_charts(tmp_path: Path) -> None:
    runs = [read_records(write_run(tmp_path / name, 4, lr=lr))[0]
            for name, lr in (("快", 2e-5), ("slow", 1e-5))]  # fmt: skip
    text = page(runs, compare=True)
    assert "2 runs compared" in text
    assert text.count("<figure") == 8
    assert re.search(r"<td>2\.[67]\d? GiB</td>", text)
    assert "optim.lr" in text


def test_a_live_page_runs_its_own_script_and_no_other() -> None:
    text = document("x", Markup("<p>main</p>"), live=True)
    assert text.count("<script>") == 1
    script = text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'; connect-src 'self'" in text


def test_a_hundred_thousand_steps_make_a_small_page(tmp_path: Path) -> None:
    lines = [event("step", at, step=at, loss=1 / at, lr=1e-5, grad_norm=at % 7 + 1.0,
                   peak={"forward": 1 << 30}) for at in range(1, 100_001)]  # fmt: skip
    write_lines(tmp_path / "events.jsonl", [started(100_000), *lines])
    text = page(read_records(tmp_path))
    assert len(text.encode()) < 1_000_000
    assert "of 100,000 points drawn" in text


KINDS = ("started", "finished", "failed", "saved", "planned", "verdict", "answers", "artifact")
FIELDS = ("t", "step", "steps", "first", "rows", "gates", "parents", "id", "name", "command",
          "versions", "stopped", "export", "peak", "message", "stage", "failures",
          "path")  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40,
          deadline=None)  # fmt: skip
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON))))
def test_whatever_a_record_holds_there_is_a_page(
    tmp_path: Path, events: list[tuple[str, dict[str, Any]]]
) -> None:
    lines = [json.dumps({"v": 1, "kind": kind, **fields}) for kind, fields in events]
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, ""]))
    assert "main" in read(page(read_records(tmp_path))).tags


def test_nothing_heavy_is_loaded() -> None:
    script = (
        "import sys, fourge.report.page, fourge.report.live, fourge.report.trackers\n"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
