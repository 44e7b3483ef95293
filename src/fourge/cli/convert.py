"""``fourge convert``: write a model in another format."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fourge.cli.options import MODEL
from fourge.cli.screen import bar, calm_libraries, echo_json, json_option, out, overwrite_option
from fourge.core.units import size

if TYPE_CHECKING:
    from fourge.nvfp4.gemm import Scheme

TARGETS = ("compressed-tensors", "modelopt", "gguf", "dat", "dat2", "dat-dense", "safetensors")
RECIPES = ("fourge", "te", "modelopt", "torchao", "compressed-tensors")


@click.command(epilog="Exit status: 0 written, 2 wrong input (nothing is left behind).")
@click.argument("model", type=MODEL)
@click.argument("out_path", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--to", "target", required=True, type=click.Choice(TARGETS), help="The format.")
@click.option("--scheme", type=click.Choice(("w4a16", "w4a4")),
              help="Quantise weights, or weights and activations.  "
              "[default: as MODEL has it, else w4a16]")  # fmt: skip
@click.option("--keep", multiple=True, metavar="NAME",
              help="One more layer to leave in bf16, by name or a part of it between dots; "
              "may be repeated. Embeddings, norms and lm_head are left anyway.")  # fmt: skip
@click.option("--quantize-head", is_flag=True, help="Quantise lm_head too.")
@click.option("--recipe", type=click.Choice(RECIPES), default="fourge", show_default=True,
              help="How scales are chosen; the others give other tools' bytes.")  # fmt: skip
@click.option("--calibration", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Text, one sample a line, to measure w4a4 activations on.")  # fmt: skip
@overwrite_option
@json_option
def convert(
    model: str,
    out_path: Path,
    target: str,
    scheme: "Scheme | None",
    keep: tuple[str, ...],
    quantize_head: bool,
    recipe: str,
    calibration: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write MODEL to OUT in another format.

    MODEL is a transformers folder, a hub id, a .gguf, a .dat or smollm2-135m (the
    embedded model). Weights that are NVFP4 already keep their codes and scales; others
    are quantised. OUT is a folder, or a file for gguf.
    """
    calm_libraries()
    # Imported here so that `fourge --help` does not wait for torch.
    from fourge import api
    from fourge.core.files import refuse_existing
    from fourge.model.swap import KEEP_BF16
    from fourge.nvfp4.recipe import recipe_named

    refuse_existing(out_path, overwrite=overwrite)
    defaults = [name for name in KEEP_BF16 if not (quantize_head and name == "lm_head")]
    with bar("writing") as (started, done):
        result = api.convert(
            model,
            out_path,
            target,
            scheme=scheme,
            keep=[*defaults, *keep],
            recipe=recipe_named(recipe),
            calibration=calibration,
            overwrite=overwrite,
            started=started,
            done=done,
        )
    if as_json:
        echo_json(result)
        return
    kept = ", ".join(result.kept) if len(result.kept) <= 4 else f"{len(result.kept)} linear layers"
    out.print(f"{result.out}: {result.tensors} tensors, {size(result.nbytes)}, {target}")
    if target not in ("safetensors", "dat-dense"):
        out.print(f"scheme {result.scheme}; not quantised: {kept or 'none'}, embeddings, norms")
