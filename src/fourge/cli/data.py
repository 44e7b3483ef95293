"""``fourge data``: make, mix and audit training data."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fourge.cli.options import MODEL
from fourge.cli.screen import (
    calm_libraries,
    counted,
    echo_json,
    json_option,
    listed,
    out,
    overwrite_option,
)

if TYPE_CHECKING:
    from fourge.data.audit import Audit
    from fourge.data.conversation import Answer
    from fourge.data.findings import Finding
    from fourge.data.make import Answers, Made
    from fourge.data.mix import Mixed

Progress = Callable[[str, int, int], None]
LANGUAGES = "zh-TW,zh-CN,en"


@click.group()
def data() -> None:
    """Make, mix and audit training data. No input file is ever changed."""


@data.group()
def make() -> None:
    """Make training data for a purpose."""


@make.command(
    short_help="Rows that teach a name, and a run file that uses them.",
    epilog="Exit status: 0 made, 2 wrong input.",
)
@click.option("--name", required=True, help='Who the model is to be, as "F# Sage".')
@click.option("--maker", default="", help="Who made it; without one it says it does not know.")
@click.option("--answer", default="",
              help='What it says to "who are you", in the language of the answer; by default '
              "varied wordings.")  # fmt: skip
@click.option("--languages", default=LANGUAGES, show_default=True,
              help="Of zh-TW, zh-CN, en, ja, es, de, fr.")  # fmt: skip
@click.option("--model", default="smollm2-135m", show_default=True, type=MODEL,
              help="The base model.")  # fmt: skip
@click.option("--out", "out_path", required=True, type=click.Path(path_type=Path),
              help="A new folder.")  # fmt: skip
@click.option("--answers", default="auto", show_default=True,
              type=click.Choice(("model", "template", "auto")),
              help="Identity answers: the model's own words where they are good, templates, or "
              "the model's if a sample shows that it is able.")  # fmt: skip
@click.option("--wordings", type=click.IntRange(1), help="At most so many of each kind of answer "
              "from a template; a small model learns few sooner.")  # fmt: skip
@click.option("--replay", type=click.IntRange(1), help="Have the base answer at most so many "
              "ordinary questions, over all subjects alike; by default all there are.")  # fmt: skip
@click.option("--max-tokens", default=48, show_default=True, help="Of the base model's answers.")
@click.option("--seed", default=0, show_default=True, help="Of the choice of wordings.")
@overwrite_option
@json_option
def identity(
    name: str, maker: str, answer: str, languages: str, model: str, out_path: Path,
    answers: "Answers", wordings: int | None, replay: int | None, max_tokens: int, seed: int,
    overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make identity, told, contrast, replay, later and tempted rows, and a run file that uses them.

    Contrast and replay rows are answered by the base model itself.
    """
    calm_libraries()
    from fourge.core.files import refuse_existing
    from fourge.data.identity import Card, require_languages
    from fourge.data.make import make_identity

    card, chosen = Card(name, maker, answer), listed(languages)
    require_languages(chosen)
    refuse_existing(out_path, overwrite=overwrite)
    place = str(Path(model).resolve()) if Path(model).exists() else model
    with counted() as progress:
        made = make_identity(
            card, chosen, out_path, model=place, answer=_base(model, max_tokens, progress),
            answers=answers, wordings=wordings, replay=replay, seed=seed, overwrite=overwrite,
        )  # fmt: skip
    echo_json(made) if as_json else _show_made(made)


def _base(model: str, max_tokens: int, progress: Progress) -> "Answer":
    """The base model as a function from conversations to answers."""
    from fourge.evaluate.answers import answering
    from fourge.model.build import load_model
    from fourge.model.source import open_source
    from fourge.model.swap import choose_device, training_dtype

    source, device = open_source(model), choose_device("auto")
    loaded = load_model(source, dtype=training_dtype("auto", device), device=device)
    told = partial(progress, "asking the base model")
    return answering(loaded, source.tokenizer(), max_tokens, told)


def _show_made(made: "Made") -> None:
    out.print(f"{made.out}/identity.jsonl  {made.identity} rows, {made.unique_prompts} unique "
              f"prompts, {made.unique_answers} answers", soft_wrap=True)  # fmt: skip
    out.print(f"{made.out}/told.jsonl      {made.told} rows", soft_wrap=True)
    out.print(f"{made.out}/contrast.jsonl  {made.contrast} rows", soft_wrap=True)
    out.print(f"{made.out}/replay.jsonl    {made.replay} rows", soft_wrap=True)
    out.print(f"{made.out}/later.jsonl     {made.later} rows", soft_wrap=True)
    out.print(f"{made.out}/tempted.jsonl   {made.tempted} rows", soft_wrap=True)
    for what, counts in (("facets", made.facets), ("languages", made.languages)):
        out.print(f"{what}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    out.print(f"identity answers in the model's own words: {made.own_words}")
    out.print(f"next: fourge train {made.out}/run.yaml", soft_wrap=True)


@data.command(epilog="Exit status: 0 mixed, 2 wrong input.")
@click.argument("files", nargs=-1, required=True, metavar="FILE=WEIGHT...")
@click.option("--out", "out_path", required=True, type=click.Path(path_type=Path),
              help="A new .jsonl file.")  # fmt: skip
@click.option(
    "--rows", type=click.IntRange(1), help="How many; by default, until a row would come twice."
)
@click.option("--seed", default=0, show_default=True, help="Of the draw.")
@overwrite_option
@json_option
def mix(
    files: tuple[str, ...], out_path: Path, rows: int | None, seed: int, overwrite: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Mix files in shares of rows, as identity.jsonl=1 replay.jsonl=10.

    What is said afterwards is counted from the rows that were written.
    """
    from fourge.data.mix import mix as mix_files

    mixed = mix_files([_weighted(each) for each in files], out_path, rows=rows, seed=seed,
                      overwrite=overwrite)  # fmt: skip
    echo_json(mixed) if as_json else _show_mixed(mixed)


def _weighted(text: str) -> tuple[Path, float]:
    path, equals, weight = text.rpartition("=")
    try:
        return Path(path if equals else text), float(weight) if equals else 1.0
    except ValueError as error:
        raise click.BadParameter(f"{weight!r} in {text!r} is no number") from error


def _show_mixed(mixed: "Mixed") -> None:
    out.print(f"{'rows':>7} {'share':>7} {'of text':>8} {'each row':>9}  file")
    for part in mixed.parts:
        text = part.characters / max(1, mixed.characters)
        out.print(f"{part.drawn:>7} {part.drawn / mixed.rows:>7.1%} {text:>8.1%} "
                  f"{part.drawn / part.rows:>8.2f}x  {part.path}", soft_wrap=True)  # fmt: skip
    out.print(f"{mixed.rows:>7} rows in {mixed.out}", soft_wrap=True)
    out.print(f"{mixed.identity_rows:>7} of them ({mixed.identity_rows / mixed.rows:.1%}) "
              "teach an identity, as counted")  # fmt: skip


@data.command(epilog="Exit status: 0 nothing is wrong, 1 something is, 2 a file cannot be read.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", help="The name that is taught; by default the one most answers give.")
@click.option(
    "--model", type=MODEL, help="Count lengths in this model's tokens instead of characters."
)
@json_option
def audit(files: tuple[Path, ...], name: str | None, model: str | None, as_json: bool) -> None:
    """Say what each file really holds, and what is wrong with it."""
    calm_libraries()
    from fourge.data.audit import audit as audit_file
    from fourge.data.findings import findings
    from fourge.data.identity import LANGUAGES as EVERY
    from fourge.evaluate.probes import probe_prompts

    count: dict[str, Any] = {}
    if model:
        from fourge.model.source import open_source

        tokenizer = open_source(model).tokenizer()
        count = {"count": lambda text: len(tokenizer(text)["input_ids"]), "unit": "tokens"}
    probes, reports, wrong = probe_prompts(EVERY), [], 0
    for path in files:
        report = audit_file(path, name=name, probes=probes, **count)
        found = findings(report)
        wrong += len(found)
        reports.append({**asdict(report), "findings": [asdict(each) for each in found]})
        if not as_json:
            _show_audit(report, found)
    if as_json:
        echo_json(reports)
    if wrong:
        raise click.exceptions.Exit(1)


def _show_audit(report: "Audit", found: "list[Finding]") -> None:
    prompts, identity = report.prompts, report.identity
    out.print(f"[bold]{report.path.name}[/bold]", soft_wrap=True)
    _item("rows", f"{report.rows}, {len(report.bad)} bad lines, {report.copies} exact copies")
    bare = prompts.padding.distinct
    without = f", {bare} without labels" if bare < prompts.unique else ""
    _item("unique prompts", f"{prompts.unique}{without}")
    named = f" {identity.name!r}" if identity.name else ""
    _item("identity rows", f"{identity.rows} ({identity.share:.1%}){named}")
    _item("answers", f"{identity.answers.unique} of identity, {report.other_answers.unique} others")
    _item("languages", _counts(prompts.languages))
    _item("topics", _counts(prompts.topics))
    prompt, answer = prompts.length, report.answer_length
    _item(report.unit, f"prompt {prompt.median} (longest {prompt.longest}), "
          f"answer {answer.median} (longest {answer.longest})")  # fmt: skip
    for each in found:
        _hanging("  ! ", each.text)
    out.print()


def _item(label: str, text: str) -> None:
    _hanging(f"  {label:<16} ", text)


def _hanging(start: str, text: str) -> None:
    """A text that goes on, where it is too long for a line, under its own beginning."""
    for line in Text(text).wrap(out, out.width - len(start)):
        out.print(Text(start + line.plain.rstrip()))
        start = " " * len(start)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "-"
