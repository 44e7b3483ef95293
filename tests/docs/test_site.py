"""The site: built with every warning an error, whole, and without a word to the network."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.hook import page_for, source_of
from tests.documents import ROOT


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_built_and_the_docstrings_are_in_it(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        assert (site / path.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    reference = (site / "api" / "optim.html").read_text(encoding="utf-8")
    assert 'id="fourge.optim.adamw.AdamW.released"' in reference
    assert "Exactly one backward must run inside." in reference


def test_a_file_outside_the_documents_is_a_page_of_its_own_text(site: Path) -> None:
    idea = (site / "ideas" / "nvfp4.html").read_text(encoding="utf-8")
    assert 'href="../source/src/fourge/nvfp4/blocks.py.html"' in idea
    source = (site / "source" / "src" / "fourge" / "nvfp4" / "blocks.py.html").read_text("utf-8")
    assert "nearest_level" in source
    assert (site / "source" / "CONTRIBUTING.html").exists()


def test_no_page_asks_the_network_for_anything(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        found = loads.findall(page.read_text(encoding="utf-8"))
        assert [tag for tag in found if 'rel="canonical"' not in tag] == [], page.name


def test_every_document_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_dump(yaml.safe_load(text.replace("!!python/object/apply:", "#"))["nav"])
    for path in (ROOT / "docs").rglob("*.md"):
        assert path.relative_to(ROOT / "docs").as_posix() in nav


def test_a_page_and_its_file_are_found_from_each_other() -> None:
    for path in ("docs/ideas/plan.md", "README.md", "src/fourge/api.py", "Makefile"):
        assert source_of(page_for(path)) == path


def test_broken_links_break_the_build(tmp_path: Path) -> None:
    """On a small site with the same hook and the same rules."""
    gone = ("../src/gone.py", "gone.md", "memory.md#gone", "../gone.md")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n" + "".join(f"[a]({at})\n" for at in gone))
    (tmp_path / "docs" / "memory.md").write_text("# Memory\n")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    rules = text[text.index("not_in_nav:") : text.index("nav:\n  - Home")]
    settings = f"site_name: small\nplugins: []\nhooks: [tests/docs/hook.py]\n{rules}"
    (tmp_path / "mkdocs.yml").write_text(settings)
    shutil.copytree(ROOT / "tests" / "docs", tmp_path / "tests" / "docs")
    shutil.copy(ROOT / "tests" / "documents.py", tmp_path / "tests")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    warned = [line for line in built.stderr.splitlines() if line.startswith("WARNING")]
    for place in ("source/src/gone.py.md", "'gone.md'", "memory.md#gone", "source/gone.md"):
        assert any(place in line for line in warned), place
