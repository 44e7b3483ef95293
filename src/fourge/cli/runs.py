"""``fourge runs``: what was tried, what differs, and where a weight file comes from."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from fourge.cli.experiment import lang_option
from fourge.cli.screen import echo_json, json_option, out

_path = click.Path(path_type=Path)


@click.group()
def runs() -> None:
    """List runs and experiments, show and compare them, trace a weight file."""


@runs.command("list", epilog="Exit status: 0 listed, 2 wrong input.")
@click.argument("folder", default=".", type=_path)
@json_option
def list_runs(folder: Path, as_json: bool) -> None:
    """Every run and experiment under FOLDER, the first begun first."""
    from fourge.harness.listing import find

    found = find(folder)
    if as_json:
        echo_json([asdict(each) for each in found])
        return
    for each in found:
        began = _minute(each.began)
        numbers = "" if each.loss is None else f", step {each.step}, loss {each.loss:.4f}"
        out.print(f"{began}  {each.kind:<10}  {each.path.relative_to(folder)}", soft_wrap=True)
        out.print(f"                  {each.state}{numbers}", soft_wrap=True)


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


@runs.command(epilog="Exit status: 0 shown, 2 wrong input.")
@click.argument("run", type=_path)
@json_option
def show(run: Path, as_json: bool) -> None:
    """One run or experiment: its state, and what it made."""
    from fourge.core.events import FILE, read_events
    from fourge.harness.listing import summary_of
    from fourge.harness.record import read_record

    summary = summary_of(run)
    artifacts = read_record(read_events(run / FILE)).artifacts.values()
    if as_json:
        echo_json({**asdict(summary), "artifacts": [asdict(each) for each in artifacts]})
        return
    for name, value in {**asdict(summary), "began": _minute(summary.began)}.items():
        if value not in (None, "", 0):
            out.print(f"{name:<9} {value}", soft_wrap=True, markup=False)
    for each in artifacts:
        verdict = {None: "", True: "passed", False: "failed"}[each.passed]
        out.print(f"\n{each.name}  {verdict}", markup=False)
        if each.reason:
            out.print(f"  {each.reason}", markup=False)
        out.print(f"  {each.digest} {each.path}", soft_wrap=True, markup=False)


@runs.command(
    short_help="What differs between two: settings, then results.",
    epilog="Exit status: 0 nothing differs, 1 something does, 2 wrong input.",
)
@click.argument("one", type=_path)
@click.argument("other", type=_path)
@json_option
def diff(one: Path, other: Path, as_json: bool) -> None:
    """What differs between two runs or two experiments: settings, then results."""
    from fourge.harness.listing import compare

    lines = compare(one, other)
    if as_json:
        echo_json(lines)
    for each in [] if as_json else lines:
        out.print(each, soft_wrap=True, markup=False)
    if lines:
        raise click.exceptions.Exit(1)


@runs.command(epilog="Exit status: 0 all is as recorded, 1 something changed or is gone, 2 wrong "
              "input.")  # fmt: skip
@click.argument("file", type=_path)
@json_option
def trace(file: Path, as_json: bool) -> None:
    """From a weight file, or its folder, back to the base, with digests."""
    from fourge.harness.listing import trace as trace_back

    links = trace_back(file)
    if as_json:
        echo_json([asdict(each) for each in links])
    for each in [] if as_json else links:
        state = "" if each.state == "not here" else f"  ({each.state})"
        out.print(f"{each.name:<16} {each.digest}{state}", soft_wrap=True, markup=False)
        out.print(f"  {each.path}", soft_wrap=True, markup=False)
    if any(each.state in ("changed", "gone") for each in links):
        raise click.exceptions.Exit(1)


@runs.command(epilog="Exit status: 0 written, 2 wrong input.")
@click.argument("experiment", type=_path)
@lang_option
def devlog(experiment: Path, lang: str) -> None:
    """Write devlog.md and artifacts.md anew from an experiment's record."""
    from fourge.harness.devlog import ARTIFACTS, DEVLOG, write_devlog

    write_devlog(experiment, lang)
    for name in (DEVLOG, ARTIFACTS):
        out.print(str(experiment / name), soft_wrap=True, markup=False)
