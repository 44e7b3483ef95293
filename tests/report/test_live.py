"""The page of a run that goes on: one page, one reader, nothing else."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from fourge.core.errors import ConfigError
from fourge.report import live
from fourge.report.live import View, server
from tests.report.example import event, started, write_lines, write_run


def append(folder: Path, step: int) -> None:
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(event("step", step, step=step, loss=1 / step)) + "\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_lines(tmp_path / "events.jsonl", [started(9)])
    append(tmp_path, 1)
    return tmp_path


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server that ends with the block."""
    made, address = server(View([folder]))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield address
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


@pytest.fixture
def address(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(live, "_REST", 0)
    with served(run) as address:
        yield address


def get(address: str, path: str | None = None, **headers: str) -> tuple[HTTPResponse, str]:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc, timeout=20)
    wanted = f"{parts.path}?{parts.query}" if path is None else path
    connection.request("GET", wanted, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_page_is_served_and_grows_with_the_run(address: str, run: Path) -> None:
    answer, text = get(address)
    assert answer.status == 200
    assert "1 of 9 steps" in text
    assert answer.headers["Cache-Control"] == "no-store"
    answer, _ = get(address + "main")
    seen = answer.headers["X-Seen"]
    assert get(address + f"main?seen={seen}")[0].status == 204
    append(run, 2)
    answer, text = get(address + f"main?seen={seen}")
    assert answer.status == 200
    assert "2 of 9 steps" in text
    assert "<html" not in text


def test_nothing_else_is_served(address: str, run: Path) -> None:
    token = urlsplit(address).path
    for path in ("/", "/main", token[:-1], token[:-2] + "/", token + "events.jsonl", token + "..",
                 "/../" + token, token + "main/", token + "%2e%2e/run.yaml"):  # fmt: skip
        answer, text = get(address, path)
        assert answer.status == 404, path
        assert text == ""


def test_another_host_or_method_is_refused(address: str) -> None:
    answer, text = get(address, None, Host="evil.example")
    assert (answer.status, text) == (403, "")
    connection = HTTPConnection(urlsplit(address).netloc, timeout=20)
    connection.request("POST", urlsplit(address).path, body="x")
    assert connection.getresponse().status == 501
    connection.close()


def test_it_listens_on_loopback_with_a_token_of_its_own(run: Path) -> None:
    made = [server(View([run])) for _ in range(2)]
    for each, address in made:
        assert each.server_address[0] == "127.0.0.1"
        assert len(urlsplit(address).path) >= 32
        each.server_close()
    assert urlsplit(made[0][1]).path != urlsplit(made[1][1]).path


def test_a_port_that_is_taken_is_said(run: Path) -> None:
    made, _ = server(View([run]))
    with pytest.raises(ConfigError, match="cannot be used"):
        server(View([run]), made.server_address[1])
    made.server_close()


def test_drawing_rests_ten_times_as_long_as_it_took(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 102.0, 121.9, 122.1, 122.2])
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    view = View([run])
    first = view.main()
    append(run, 2)
    assert view.main() == first, "not before 122"
    assert view.main() != first


def test_without_news_nothing_is_drawn(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_REST", 0)
    view = View([run])
    first = view.main()
    monkeypatch.setattr(live, "body", lambda records, compare: pytest.fail("drawn again"))
    assert view.main() == first


def test_a_stage_that_begins_later_is_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_REST", 0)
    view = View([run])
    view.main()
    write_run(run / "stage", 4)
    assert "Training of stage" in view.main()[1]


def test_the_run_is_only_read(run: Path, address: str) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*")}
    get(address)
    assert {path: path.read_bytes() for path in run.rglob("*")} == before
