"""``fourge report``: a run, or several, as one page."""

from importlib.util import find_spec
from pathlib import Path

import click

from fourge.cli.screen import err, out, overwrite_option
from fourge.core.errors import ConfigError
from fourge.core.files import refuse_existing, whole_file

PAGE, STDOUT = "report.html", Path("-")


@click.command(epilog="Exit status: 0 written, 2 wrong input, 130 interrupted.")
@click.argument("folders", metavar="RUN...", nargs=-1, required=True,
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("-o", "--out", "path", type=click.Path(path_type=Path, allow_dash=True),
              help=f"The page; - is stdout.  [default: RUN/{PAGE}, replaced]")  # fmt: skip
@overwrite_option
@click.option("--compare", is_flag=True, help="One page for several runs, curve by curve.")
@click.option("--live", is_flag=True, help="Serve the page on loopback while the run goes on.")
@click.option("--port", default=0, type=click.IntRange(0, 65535),
              help="Of --live.  [default: one that is free]")  # fmt: skip
@click.option("--report-to", "tracker", metavar="TRACKER",
              type=click.Choice(["tensorboard", "trackio", "mlflow", "wandb"]),
              help="Send the run's events to tensorboard, trackio, mlflow or wandb instead; with "
              "--live, as they come.")  # fmt: skip
def report(
    folders: tuple[Path, ...], path: Path | None, overwrite: bool, compare: bool, live: bool,
    port: int, tracker: str | None,
) -> None:  # fmt: skip
    """Write the page of RUN: a folder that a run or an experiment wrote.

    The page is one HTML file that needs no network. It says how the run ended, shows its
    curves, its memory and what the guard did, gates and answers if there were any, and where
    everything came from.
    """
    _require_one_meaning(folders, path, compare=compare, live=live, tracker=tracker)
    if tracker:
        _send(folders[0], tracker, live=live)
        return
    _require_matplotlib()
    if live:
        _serve(folders, port, compare=compare)
        return
    if path and path != STDOUT:
        refuse_existing(path, overwrite=overwrite)
    from fourge.report.page import page
    from fourge.report.record import read_records

    records = [record for folder in folders for record in read_records(folder)]
    _write(page(records, compare=compare), path, folders[0] / PAGE, overwrite=overwrite)


def _require_one_meaning(
    folders: tuple[Path, ...], path: Path | None, *, compare: bool, live: bool, tracker: str | None
) -> None:
    if compare != (len(folders) > 1):
        raise ConfigError("A page is of one run, or compares several.",
                          fix="give one RUN, or --compare with two or more")  # fmt: skip
    if path and (live or tracker):
        raise ConfigError("No page is written with --live or --report-to.", fix="leave -o out")
    if tracker and compare:
        raise ConfigError("One run is sent at a time.", fix="leave --compare out")
    if compare and path is None and not live:
        raise ConfigError("A comparison belongs to no run.", fix="say where with -o page.html")


def _require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "The charts are drawn by matplotlib, which is not installed.",
            fix="pip install 'fourge[pictures]'",
        )


def _write(text: str, path: Path | None, usual: Path, *, overwrite: bool) -> None:
    if path == STDOUT:
        click.echo(text, nl=False)
        return
    target = path or usual
    with whole_file(target, overwrite=overwrite or path is None) as temporary:
        temporary.write_text(text, encoding="utf-8")
    out.print(str(target), soft_wrap=True, markup=False)


def _serve(folders: tuple[Path, ...], port: int, *, compare: bool) -> None:
    from fourge.report.live import View, serve, server

    view = View(folders, compare=compare)
    view.main()  # a folder without a record is refused here, and not in the browser
    made, address = server(view, port)
    out.print(address, soft_wrap=True)
    err.print("open this address; Ctrl-C ends it, and not the run")
    serve(made)


def _send(folder: Path, tracker: str, *, live: bool) -> None:
    from fourge.report.trackers import send

    count = send(folder, tracker, follow=live)
    out.print(f"{count:,} steps sent to {tracker}")
