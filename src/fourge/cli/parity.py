"""``fourge parity``: are two ways to compute a model the same model?"""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fourge.cli.options import MODEL, device_option, dtype_option
from fourge.cli.screen import calm_libraries, echo_json, json_option, others_silent, out

if TYPE_CHECKING:
    from fourge.evaluate.parity import Likely, Parity

PROMPT = "What is the capital of France?"


@click.command(
    epilog="Exit status: 0 within the bounds, 1 beyond them, 2 wrong input. The bounds: the same "
    "codes in one dtype must be equal, bit for bit; rounded weights against their originals must "
    "keep --cosine and --agreement."
)
@click.argument("model", type=MODEL)
@click.option("--path", default="train", show_default=True,
              type=click.Choice(("train", "packed", "dense")),
              help="The one form: codes made from master weights, codes alone, or not "
              "quantised.")  # fmt: skip
@click.option("--against", type=MODEL, metavar="PATH|MODEL",
              help="The other: train, packed, transformers (an export, loaded by it alone), "
              "dense, bf16 (not quantised), or another model.  "
              "[default: packed, or train]")  # fmt: skip
@click.option("--prompt", default=PROMPT, show_default=True, metavar="TEXT",
              help="What both read.")  # fmt: skip
@click.option("--tokens", default=32, show_default=True, type=click.IntRange(1),
              help="Tokens to go on with.")  # fmt: skip
@click.option("--cosine", default=0.8, show_default=True, type=click.FloatRange(-1, 1),
              help="The least cosine, at every place.")  # fmt: skip
@click.option("--agreement", default=0.5, show_default=True, type=click.FloatRange(0, 1),
              help="The least share of equal tokens.")  # fmt: skip
@dtype_option
@device_option
@json_option
def parity(
    model: str, path: str, against: str | None, prompt: str, tokens: int, cosine: float,
    agreement: float, dtype: str, device: str, as_json: bool,
) -> None:  # fmt: skip
    """Compare two forms of MODEL: every block, the first token, the tokens after it.

    One of them is in memory at a time.
    """
    calm_libraries()
    from fourge.evaluate.parity import Bounds
    from fourge.evaluate.parity import parity as compare
    from fourge.evaluate.sides import two_sides

    one, other = two_sides(model, path, against, dtype=dtype, device=device)
    bounds = Bounds(cosine, agreement)
    with others_silent():
        found = compare(one, other, prompt, tokens=tokens, bounds=bounds, device=device)
    if as_json:
        echo_json({**asdict(found), "bounds": asdict(bounds), "passed": not found.failures})
    else:
        _show(found)
    if found.failures:
        raise click.exceptions.Exit(1)


def _show(found: "Parity") -> None:
    for name, dtype in zip((found.one, found.other), found.dtypes, strict=True):
        out.print(f"{name} in {dtype}", markup=False, soft_wrap=True)
    out.print(f"\n{'place':<10} {'largest':>10} {'mean':>10} {'cosine':>9}")
    for each in found.places:
        out.print(f"{each.place:<10} {each.largest:>10.4g} {each.mean:>10.4g} {each.cosine:>9.6f}")
    out.print(f"\nfirst token, after {found.prompt_tokens}")
    for place, (one, other) in enumerate(zip(*found.top, strict=True), 1):
        out.print(f"{place:>2}  {_likely(one)}    {_likely(other)}", markup=False)
    parted = "" if found.parted is None else f"; they part at token {found.parted + 1}"
    out.print(f"\n{found.agreed} of {found.tokens} greedy tokens agree{parted}")
    for failure in found.failures:
        out.print(failure, markup=False, soft_wrap=True)
    if not found.failures:
        out.print("equal, bit for bit" if found.equal else "within the bounds")


def _likely(token: "Likely") -> str:
    return f"{token.logit:>9.4f} {token.id:>6} {token.text!r:<16.16}"
