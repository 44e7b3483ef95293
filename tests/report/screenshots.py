"""Pictures for the README: ``make screenshots``, or with a run of your own: RUN=runs/identity.

Without a run it is the made-up record of ``example.py``.
"""

import sys
import tempfile
from pathlib import Path

from fourge.report.page import page
from fourge.report.record import read_records
from tests.report.browser import DESKTOP, PHONE, chromium
from tests.report.example import write_run

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES = (("report-desktop.png", DESKTOP, "light"), ("report-phone.png", PHONE, "dark"))


def main(run: Path | None, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        file = Path(made) / "page.html"
        records = read_records(run or write_run(Path(made) / "example", 400))
        file.write_text(page(records), encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for name, (width, height), scheme in PICTURES:
            size = {"width": width, "height": height}
            tab = browser.new_page(viewport=size, color_scheme=scheme)
            tab.goto(file.as_uri())
            clip = {"x": 0, "y": 0, "width": width, "height": 2 * height}
            tab.screenshot(path=folder / name, full_page=True, clip=clip)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None, FOLDER)
