"""The record of an experiment for people: ``devlog.md`` (what happened) and ``artifacts.md``.

Both are written anew from the events, in English or Traditional Chinese, and can be written again
at any time. Names of gates, of settings and of files are the same in both.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fourge.core.events import FILE, read_events
from fourge.core.files import whole_file
from fourge.data.shipped import shipped
from fourge.harness.record import Artifact, read_record

DEVLOG, ARTIFACTS = "devlog.md", "artifacts.md"
NONE_PASSES, ALL_PASS = "no share passes", "every gate passes"


def write_devlog(out: Path, language: str = "en") -> None:
    """Write both files of an experiment's folder.

    Raises:
        FormatError: it has no record.
    """
    events = list(read_events(out / FILE))
    texts = shipped("fourge.harness", "devlog.yaml")[language]
    lines = [f"# {texts['devlog']}", ""]
    lines += [f"- {_time(event)} {said}" for event in events if (said := _said(event, texts))]
    _write(out / DEVLOG, lines)
    columns = texts["columns"].split("|")
    lines = [f"# {texts['artifacts']}", "", _row(columns), _row(["---"] * len(columns))]
    artifacts = read_record(events).artifacts.values()
    _write(out / ARTIFACTS, lines + [_row(_cells(each, texts)) for each in artifacts])


def _said(event: dict[str, Any], texts: dict[str, str]) -> str:
    kind = event["kind"]
    if kind not in texts:
        return ""
    values = {**event, "reason": _reason(event, texts)}
    values["command"] = " ".join(event.get("command", ()))
    values["purpose"] = texts.get(f"is {event.get('purpose')}", "")
    values["of"] = texts.get(f"of {event.get('of')}", "")
    settings = event.get("settings")
    if isinstance(settings, list):
        values["settings"] = ", ".join(settings) or texts["as the file says"]
    return texts[kind].format_map(values)


def _reason(event: dict[str, Any], texts: dict[str, str]) -> str:
    if event["kind"] == "ended":
        if event["stopped"]:
            return texts["stopped"].format_map(event)
        return texts["passed" if event["passed"] else "failed"]
    reason = str(event.get("collapsed") or event.get("reason", ""))
    if not reason:
        return texts["to the scan" if event["kind"] == "trained" else "nothing"]
    return texts.get(reason, reason)


def _cells(artifact: Artifact, texts: dict[str, str]) -> list[str]:
    verdict = {None: "", True: texts["it passed"], False: texts["it failed"]}[artifact.passed]
    reason = f": {texts.get(artifact.reason, artifact.reason)}" if artifact.reason else ""
    return [
        artifact.name, texts[f"is {artifact.purpose}"], artifact.parent, f"`{artifact.digest}`",
        verdict + reason, f"`{artifact.path}`",
    ]  # fmt: skip


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _time(event: dict[str, Any]) -> str:
    return datetime.fromtimestamp(event["t"], UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _write(path: Path, lines: list[str]) -> None:
    with whole_file(path, overwrite=True) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
