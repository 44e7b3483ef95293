"""``fourge doctor``: say what this machine can do."""

import sys

import click

from fourge.cli.screen import calm_libraries, echo_json, json_option, out

_MARK = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "fail": "[red]FAIL[/]"}


@click.command(epilog="Exit status: 0 all is well, 1 something failed.")
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine: versions, memory, guard, device, kernels, one real step."""
    calm_libraries()
    from dataclasses import asdict

    from fourge.doctor import examine

    findings = []
    for finding in examine():
        findings.append(finding)
        if not as_json:
            out.print(f"{_MARK[finding.state]:>4}\t{finding.subject}: {finding.text}")
    if as_json:
        echo_json([asdict(finding) for finding in findings])
    sys.exit(1 if any(finding.state == "fail" for finding in findings) else 0)
