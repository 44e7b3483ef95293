"""``fourge demo``: the whole job on the embedded model."""

import tempfile
from contextlib import nullcontext
from pathlib import Path

import click

from fourge.cli.guarded import run_under_guard
from fourge.cli.options import MODEL
from fourge.cli.screen import (
    bar,
    calm_libraries,
    echo_json,
    json_option,
    others_silent,
    out,
    overwrite_option,
)
from fourge.core.units import size

QUESTION = "What is the capital of France?"


@click.command(
    epilog="Exit status: 0 the logits are equal bit for bit, 1 they are not, 2 wrong input, 124 "
    "stopped by the guard."
)
@click.option("--model", default="smollm2-135m", show_default=True, type=MODEL,
              help="A transformers folder, a hub id, a .gguf or a .dat.")  # fmt: skip
@click.option("--out", "out_path", type=click.Path(path_type=Path),
              help="Keep the export here, instead of in a folder that is removed.")  # fmt: skip
@click.option("--question", default=QUESTION, show_default=True,
              help="What the exported model is asked.")  # fmt: skip
@click.option("--guard/--no-guard", default=True, show_default=True,
              help="Watch the machine's memory meanwhile.")  # fmt: skip
@overwrite_option
@json_option
def demo(
    model: str, out_path: Path | None, question: str, guard: bool, overwrite: bool, as_json: bool
) -> None:
    """Quantise a model, export it, load it with plain transformers, compare, and ask."""
    if guard:
        run_under_guard({})
    calm_libraries()
    from fourge import api
    from fourge.core.files import refuse_existing

    def say(text: str) -> None:
        if not as_json:
            out.print(text)

    if out_path:
        refuse_existing(out_path, overwrite=overwrite)
    with tempfile.TemporaryDirectory() if out_path is None else nullcontext() as temporary:
        target = out_path or Path(str(temporary)) / "nvfp4"
        with bar("1/4 quantising and exporting") as (started, done):
            result = api.convert(model, target, "compressed-tensors", overwrite=overwrite,
                                 started=started, done=done)  # fmt: skip
        say(f"1/4  exported {model} in NVFP4: {result.tensors} tensors, {size(result.nbytes)}")
        with others_silent():
            checked = api.check_export(model, target)
        say(f"2/4  plain transformers loaded it: {checked.logits:,} logits equal ours, bit for bit")
        say(f"3/4  weights differ from the original by {checked.error:.2%} (root mean square)")
        reply = api.ask(target, question)
        say(f"4/4  {question}\n     {reply}")
        if out_path:
            say(f"The export is in {out_path}.")
    if as_json:
        echo_json({"bytes": result.nbytes, "logits": checked.logits, "error": checked.error,
                   "question": question, "answer": reply})  # fmt: skip
