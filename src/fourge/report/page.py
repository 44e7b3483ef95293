"""The page: one HTML file that needs nothing else, from the verdict to the settings.

A Content-Security-Policy forbids it every request, so a page that was sent around tells nobody
that it was opened. It has no script; the one that ``--live`` serves has one, allowed by its digest,
which may ask its own server only.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib.resources import files

from fourge import __version__
from fourge.core.units import size
from fourge.report import facts
from fourge.report.answers import answers
from fourge.report.chart import Chart, figure
from fourge.report.curves import compared_charts, memory_charts, step_charts
from fourge.report.gates import is_sample, verdict
from fourge.report.lineage import lineage
from fourge.report.markup import Markup, details, section, table, tag, together
from fourge.report.record import PEAK, Record
from fourge.report.status import status


def page(records: Sequence[Record], *, compare: bool = False) -> str:
    """A whole document."""
    return document(title_of(records), body(records, compare=compare))


def title_of(records: Sequence[Record]) -> str:
    return " / ".join(record.name for record in records[:4])


def document(title: str, main: Markup, *, live: bool = False) -> str:
    """What surrounds the part that changes."""
    script = _file("live.js") if live else ""
    head = together((
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<meta name="referrer" content="no-referrer">'),
        tag("title", f"{title} - fourge report"),
        tag("style", Markup(_file("page.css"))),
    ))  # fmt: skip
    foot = tag("footer", f"fourge {__version__}. Times are UTC.")
    parts = [tag("main", main, id="main"), foot, tag("script", Markup(script)) if live else ""]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', *parts), lang='en')}\n"


def body(records: Sequence[Record], *, compare: bool = False) -> Markup:
    """What changes as a run goes on."""
    if compare:
        return _compared(records)
    first = records[0]
    parts = [_header(first, "fourge report"), _judged(records)]
    for at, record in enumerate(records):
        parts += [_header(record, "run")] if at else []
        parts.append(_run(record, f"r{at}", f" of {record.name}" if len(records) > 1 else ""))
    if graph := lineage(records):
        parts.append(section("lineage", "Lineage", graph))
    return together(parts)


def _header(record: Record, kicker: str) -> Markup:
    end = status(record)
    return tag("header", tag("p", kicker, class_="kicker"), tag("h1", record.name),
               tag("p", tag("span", end.word, class_=f"word {end.word}"), " ", end.text,
                   class_="verdict"), tag("p", _last_seen(record), class_="kicker"))  # fmt: skip


def _last_seen(record: Record) -> str:
    return f"last event {when}" if (when := facts.clock(record.last_at or None)) else ""


def _judged(records: Sequence[Record]) -> Markup:
    """Gates and answers: the last, and the others behind a fold. Gates of all items come last."""
    parts = []
    for kind, title, show in (("verdict", "Gates", verdict), ("answers", "Answers", answers)):
        events = [event for record in records for event in record.of(kind)]
        if kind == "verdict":
            events.sort(key=lambda event: not is_sample(event))
        shown = [show(event, f"{kind}-{at}") for at, event in enumerate(events)]
        *earlier, last = shown or [Markup("")]
        fold = details(f"{kind}-earlier", f"{len(earlier)} others", *reversed(earlier))
        if last:
            parts.append(section(kind, title, last, fold if earlier else Markup("")))
    return together(parts)


def _run(record: Record, name: str, of: str) -> Markup:
    """Charts and tables of one run."""
    parts = [
        (f"{name}-curves", f"Training{of}", _grid(step_charts(record, name))),
        (f"{name}-memory", f"Memory{of}", _grid(memory_charts(record, name))),
        (f"{name}-data", f"Data{of}", facts.data(record)),
        (f"{name}-events", f"What happened{of}", facts.happenings(record, name)),
        (f"{name}-origin", f"Origin{of}",
         together((facts.origin(record), facts.settings(record, name)))),
    ]  # fmt: skip
    return together(section(*part) for part in parts if part[2])


def _grid(charts: Sequence[Chart]) -> Markup:
    return tag("div", *map(figure, charts), class_="grid") if charts else Markup("")


def _compared(records: Sequence[Record]) -> Markup:
    head = "run", "end", "loss", "KL", "tokens/s", "peak", "how it ended"
    rows = [_summary(record) for record in records]
    return together((
        tag("header", tag("p", "fourge report", class_="kicker"),
            tag("h1", f"{len(records)} runs compared")),
        section("runs", "Runs", table(head, rows, "Runs")),
        section("curves", "Training", _grid(compared_charts(records))),
        section("settings", "Settings that differ", facts.compared(records)),
    ))  # fmt: skip


def _summary(record: Record) -> list[str]:
    end, steps = status(record), record.steps
    phases = [name for name in steps.names() if name.startswith(PEAK)]
    peak = max((max(steps.points("t", name)[1], default=0.0) for name in phases), default=0.0)
    return [
        record.name,
        tag("span", end.word, class_=f"word {end.word}"),
        _last(record, "loss", ".4f"),
        _last(record, "kl", ".4f"),
        _last(record, "tokens_per_s", ",.0f"),
        size(int(peak)) if peak else "",
        end.text,
    ]


def _last(record: Record, column: str, form: str) -> str:
    values = record.steps.points("step", column)[1]
    return format(values[-1], form) if values and math.isfinite(values[-1]) else ""


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; connect-src 'self'; " if script else ""
    return (
        f"default-src 'none'; {allowed}style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )


def _file(name: str) -> str:
    return (files("fourge.report") / name).read_text(encoding="utf-8")
