"""``fourge bench``: measure against peers."""

import click

from fourge.cli.screen import calm_libraries, echo_json, json_option, out


@click.group()
def bench() -> None:
    """Measure against peers: ratios in one run, medians of interleaved repeats."""


@bench.command()
@click.option("--repeats", default=15, show_default=True, help="Rounds; the median counts.")
@click.option("--no-load", is_flag=True, help="Leave out the load-quantise-export part (minutes).")
@json_option
def nvfp4(repeats: int, no_load: bool, as_json: bool) -> None:
    """Quantise and decode 16.8 million values; load, quantise and export a model.

    Each line is a time, and how many times as fast it is as the first line of its part.
    """
    calm_libraries()
    from fourge.bench.nvfp4 import measure

    results = []
    for part in measure(repeats, load=not no_load):
        results.append(part)
        if not as_json:
            out.print(part.table())
    if as_json:
        echo_json([part.as_dict() for part in results])
