"""``fourge needle``: hide a secret in a long text, and ask for it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourge.cli.options import MODEL, device_option, dtype_option, path_option
from fourge.cli.screen import calm_libraries, counted, echo_json, json_option, listed, out
from fourge.core.errors import ConfigError

if TYPE_CHECKING:
    from fourge.evaluate.needle import Recall

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="Exit status: 0 done, 1 less was found than --at-least asks for, 2 wrong input."
)
@click.argument("model", type=MODEL)
@click.option("--tokens", required=True, type=click.IntRange(1), help="The longest prompt.")
@click.option("--chunk", default=512, show_default=True, type=click.IntRange(1),
              help="Tokens fed at once.")  # fmt: skip
@click.option("--depths", default=5, show_default=True, type=click.IntRange(1),
              help="How many depths, from the beginning to the end.")  # fmt: skip
@click.option("--lengths", default="", metavar="N,N",
              help="Shorter prompts, instead of a quarter and a half of --tokens.")  # fmt: skip
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A text to hide it in, instead of Python's reference.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of the secrets.")
@path_option
@dtype_option
@device_option
@click.option("--at-least", default=0.0, type=click.FloatRange(0, 1), metavar="SHARE",
              help="The share of secrets that must be found, or exit status 1.")  # fmt: skip
@click.option("--picture", type=_FILE, metavar="FILE",
              help="Draw recall and memory, as .png, .svg or .pdf.")  # fmt: skip
@json_option
def needle(
    model: str, tokens: int, chunk: int, depths: int, lengths: str, text: Path | None, seed: int,
    path: str, dtype: str, device: str, at_least: float, picture: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Hide a secret in a long text, feed it to MODEL in chunks, and ask for it.

    Says at which depths of which lengths it is found, and what a token costs in memory
    beside what the model's shape predicts.
    """
    chosen = _lengths(lengths, tokens)
    calm_libraries()
    from fourge.chat.conversation import Template
    from fourge.chat.load import load
    from fourge.checkpoint.source import open_any
    from fourge.core.picture import figure_for, write_figure
    from fourge.evaluate.haystack import Haystack
    from fourge.evaluate.needle import ANSWER, depths_of, recall
    from fourge.evaluate.needle_picture import draw
    from fourge.memory.kv import kv_nbytes

    figure = figure_for(picture) if picture else None
    opened = open_any(model)
    _require_room(opened.source.config, tokens)
    template = Template(opened.source.tokenizer(), opened.template_arguments)
    hidden = Haystack(template, _text(text)).hide(
        chosen, depths_of(depths), answer=ANSWER, seed=seed
    )
    loaded = load(opened, path=path, device=device, dtype=dtype)
    with counted() as progress:
        found = recall(loaded.model, template, hidden, chunk=chunk, progress=progress)
    predicted = kv_nbytes(opened.source.config, 1, dtype=loaded.dtype)
    if picture:
        draw(figure, found, predicted, model)
        write_figure(figure, picture)
    if as_json:
        echo_json(_report(found, predicted))
    else:
        _show(found, predicted)
    if found.share() < at_least:
        raise click.exceptions.Exit(1)


def _lengths(text: str, tokens: int) -> list[int]:
    try:
        shorter = [int(each) for each in listed(text)] if text else [tokens // 4, tokens // 2]
    except ValueError as error:
        raise ConfigError(f"--lengths {text} is not a list of numbers, as 512,1024.") from error
    if any(not 0 < length <= tokens for length in shorter):
        raise ConfigError(f"--lengths {text} go from 1 to --tokens, {tokens}.")
    return sorted({*shorter, tokens})


def _require_room(config: Any, tokens: int) -> None:
    """Refuse before a weight is read what the model was not made for."""
    from fourge.chat.session import context_of

    room = context_of(config, None)
    if tokens > room:
        raise ConfigError(
            f"--tokens {tokens} is more than the model's context of {room}.",
            why="positions that it was never trained on give any answer at all",
            fix=f"ask for {room} or fewer",
        )


def _text(path: Path | None) -> str:
    from fourge.evaluate.perplexity import real_text

    if path is None:
        return real_text()
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text.", why=str(error)) from error


def _report(found: "Recall", predicted: int) -> dict[str, Any]:
    from fourge.evaluate.needle import growth, halves

    asked = [{**asdict(each), "found": each.found} for each in found.asked]
    return {
        "recall": found.share(),
        "by_length": {each.length: found.share(length=each.length) for each in found.asked},
        "by_depth": {each.depth: found.share(depth=each.depth) for each in found.asked},
        "asked": asked,
        "bytes_per_token": {
            "predicted": predicted,
            "cache": growth(found.held, "cache"),
            "resident": growth(found.held, "resident"),
            "resident_by_half": halves(found.held),
        },
        "held": [asdict(each) for each in found.held],
    }


def _show(found: "Recall", predicted: int) -> None:
    _show_recall(found)
    _show_memory(found, predicted)


def _show_recall(found: "Recall") -> None:
    lengths = sorted({each.length for each in found.asked})
    out.print(f"{'depth':>6} " + "".join(f"{length:>9,}" for length in lengths) + "  tokens")
    results = {(each.depth, each.length): each.found for each in found.asked}
    for depth in sorted({each.depth for each in found.asked}):
        cells = ("found" if results[depth, length] else "lost" for length in lengths)
        out.print(f"{depth:>6.0%} " + "".join(f"{cell:>9}" for cell in cells))
    for each in found.asked:
        if not each.found:
            said = " ".join(each.reply.split())[:30]
            out.print(f"{each.length:,} at {each.depth:.0%}: {each.code} hidden, {said!r} said",
                      markup=False)  # fmt: skip
    out.print(f"{found.share():.0%} found")


def _show_memory(found: "Recall", predicted: int) -> None:
    from fourge.evaluate.needle import growth, halves

    first, second = map(_bytes, halves(found.held))
    cache, resident = (_bytes(growth(found.held, what)) for what in ("cache", "resident"))
    out.print(f"bytes a token: {predicted:,} predicted, {cache} in the cache, {resident} resident")
    out.print(f"resident by half: {first} and {second}")


def _bytes(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,.0f}"
