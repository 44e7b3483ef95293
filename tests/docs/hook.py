"""Makes the site from the files as they lie in the repository (``hooks`` in mkdocs.yml).

A page may link to any file of the repository, by the path that the code host follows too. On the
site, which holds ``docs`` alone, such a file becomes a page: Markdown as it is, anything else as
its own text. What is linked to and is not there leads nowhere, which ``--strict`` refuses.
"""

from pathlib import Path
from posixpath import relpath
from typing import Any

from mkdocs.structure.files import File, Files

from tests.docs.links import links, resolved, with_links
from tests.documents import ROOT

LANGUAGE = {".py": "python", ".js": "js", ".cpp": "cpp", ".yaml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages link to outside ``docs``, and what that links to in turn."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        for path in _outside(waiting.pop()):
            place = page_for(path)
            if files.get_file_from_path(place) is None and (ROOT / path).is_file():
                added = File.generated(config, place, content=_page(path))
                files.append(added)
                waiting.append(added)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    here = source_of(page.file.src_uri)

    def change(target: str) -> str:
        path, anchor = resolved(here, target)
        place = relpath(page_for(path), f"{page.file.src_uri}/..")
        return f"{place}#{anchor}" if anchor else place

    return with_links(markdown, change)


def page_for(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def source_of(place: str) -> str:
    """Where a page of the site lies in the repository; the reverse of ``page_for``."""
    if not place.startswith("source/"):
        return f"docs/{place}"
    path = place.removeprefix("source/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def _outside(file: File) -> list[str]:
    here = source_of(file.src_uri)
    if not here.endswith(".md"):
        return []
    found = [resolved(here, target)[0] for target in links(file.content_string)]
    return [path for path in found if not path.startswith(("docs/", ".."))]


def _page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n`````{LANGUAGE.get(Path(path).suffix, 'text')}\n{text}`````\n"
