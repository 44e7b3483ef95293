"""Chromium, as the distribution packages it, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PHONE, DESKTOP = (390, 800), (1280, 900)


def found() -> str | None:
    """Chromium's path."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; Chromium's sandbox does not start for root."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        made = driver.chromium.launch(executable_path=found(), args=flags)
        yield made
        made.close()
