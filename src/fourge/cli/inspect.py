"""``fourge inspect``: say what a file holds."""

import click
from rich.table import Table

from fourge.cli.options import MODEL
from fourge.cli.screen import calm_libraries, echo_json, json_option, out
from fourge.core.units import size


@click.command(epilog="Exit status: 0 ok, 2 the file is damaged or is not one of these.")
@click.argument("file", type=MODEL)
@click.option(
    "--against",
    type=MODEL,
    metavar="OTHER",
    help="Also the error against another model or file: |this - other| / |other|.",
)
@click.option("--all", "every", is_flag=True, help="Each layer on its own line.")
@json_option
def inspect(file: str, against: str | None, every: bool, as_json: bool) -> None:
    """List the tensors of FILE: a model, or a .safetensors, .gguf or .dat alone."""
    calm_libraries()
    from fourge import api

    result = api.inspect(file, against=against, every=every)
    if as_json:
        echo_json(result)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("weight", overflow="fold")
    for heading in ("count", "shape", "form", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    if against:
        table.add_column("error", justify="right", no_wrap=True)
    for row in result.rows:
        shape = "x".join(map(str, row.shape)) or "scalar"
        error = ["-" if row.error is None else f"{row.error:.3g}"] if against else []
        table.add_row(
            row.name.removesuffix(".weight"),
            str(row.count),
            shape,
            row.kind,
            size(row.nbytes),
            *error,
        )
    out.print(table)
    tensors = sum(row.count for row in result.rows)
    out.print(
        f"{tensors} tensors, {result.values:,} values, {size(result.nbytes)}, {result.layout}"
    )
