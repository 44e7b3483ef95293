"""The page in a real browser: drawn, silent, and right at every width."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fourge.report import live
from fourge.report.page import page
from fourge.report.record import read_records
from tests.report.browser import DESKTOP, PHONE, chromium, found
from tests.report.example import event, write_run
from tests.report.test_live import served

pytest.importorskip("playwright", reason="Playwright is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(found() is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("browser") / "身份", 60)
    path = folder / "page.html"
    path.write_text(page(read_records(folder)), encoding="utf-8")
    return path


class Tab:
    """A page that remembers what it said and asked for."""

    def __init__(
        self, browser: Any, size: tuple[int, int] = DESKTOP, scheme: str = "light"
    ) -> None:
        viewport = {"width": size[0], "height": size[1]}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, address: str) -> "Tab":
        self.page.goto(address)
        return self


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_inside_the_width_without_a_word_or_a_request(
    browser: Any, file: Path, size: tuple[int, int], scheme: str
) -> None:
    tab = Tab(browser, size, scheme).open(file.as_uri())
    assert tab.said == []
    assert tab.asked == [tab.page.url]
    assert tab.page.evaluate("document.documentElement.scrollWidth") == size[0]
    boxes = [each.bounding_box() for each in tab.page.locator("figure > svg").all()]
    assert len(boxes) == 11
    assert all(box["width"] > 250 and box["height"] > 80 for box in boxes)
    curves = tab.page.locator("#r0-loss svg path[style*='--curve-0']")
    assert curves.first.bounding_box()["height"] > 40
    tab.context.close()


def test_light_and_dark_have_their_own_colours(browser: Any, file: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        tab = Tab(browser, scheme=scheme).open(file.as_uri())
        curve = "getComputedStyle(document.querySelector(\"svg path[style*='--curve-0']\")).stroke"
        colours.append([tab.page.evaluate(each) for each in (
            curve, "getComputedStyle(document.body).color",
            "getComputedStyle(document.body).backgroundColor")])  # fmt: skip
        tab.context.close()
    assert all(one != two for one, two in zip(*colours, strict=True))


def test_a_request_would_be_refused(browser: Any, file: Path) -> None:
    tab = Tab(browser).open(file.as_uri())
    tab.page.evaluate(
        "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/'}))"
    )
    tab.page.wait_for_timeout(200)
    assert any("Content Security Policy" in line for line in tab.said)
    tab.context.close()


def test_the_numbers_are_reached_by_keyboard(browser: Any, file: Path) -> None:
    tab = Tab(browser).open(file.as_uri())
    numbers = tab.page.locator("#r0-loss-numbers")
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        if numbers.locator("summary").evaluate("each => each === document.activeElement"):
            break
    tab.page.keyboard.press("Enter")
    assert numbers.locator("table").is_visible()
    tab.context.close()


def _has_chinese_font() -> bool:
    done = subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=False)
    return bool(done.stdout.strip())


def test_chinese_is_shown(browser: Any, file: Path) -> None:
    if not _has_chinese_font():
        pytest.skip("no Chinese font is installed")
    tab = Tab(browser).open(file.as_uri())
    title = tab.page.locator("h1")
    pictures = {title.screenshot()}
    for text in ("誰神", "機器"):  # boxes for missing glyphs would all look the same
        title.evaluate("(each, text) => { each.textContent = text }", text)
        pictures.add(title.screenshot())
    assert len(pictures) == 3
    tab.context.close()


def test_it_prints(browser: Any, file: Path) -> None:
    tab = Tab(browser, scheme="dark").open(file.as_uri())
    assert tab.page.pdf()[:4] == b"%PDF"
    tab.page.emulate_media(media="print")
    assert (
        tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    tab.context.close()


def test_a_live_page_follows_its_run_without_a_reload(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_REST", 0)
    folder = write_run(tmp_path / "a", 6, judged=False)
    with served(folder) as address:
        tab = Tab(browser).open(address)
        tab.page.evaluate("window.stayed = true")
        tab.page.locator("#r0-loss-numbers summary").click()
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(event("failed", 99.0, message="壞了")) + "\n")
        tab.page.get_by_text("Failed: 壞了").wait_for(timeout=20_000)
        assert tab.page.evaluate("window.stayed")
        assert tab.page.locator("#r0-loss-numbers table").is_visible(), "what was opened stays"
    tab.page.get_by_text("The server is gone").wait_for(timeout=20_000)
    assert all(url.startswith(address) for url in tab.asked)
    tab.context.close()
