import subprocess
import sys

import pytest
from click.testing import CliRunner

from fourge.cli.guard import guard
from fourge.guard.options import OPTIONS


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fourge", "guard", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_verb_runs_a_command_under_guard() -> None:
    done = run("--floor", "64MiB", "--", "sh", "-c", "echo -- $FOURGE_GUARD_FD; exit 5")
    assert done.returncode == 5
    assert done.stdout.startswith("-- ")
    assert ":" in done.stdout
    assert done.stderr.startswith("fourge guard: ")


@pytest.mark.parametrize("args", [["--floor", "8"], ["--floor", "8GB", "--", "true"], ["--fly"]])
def test_wrong_usage_is_two_and_no_traceback(args: list[str]) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_help_lists_every_option_that_is_not_hidden() -> None:
    text = CliRunner().invoke(guard, ["--help"]).output
    for option in OPTIONS:
        assert (option.flag in text) != option.hidden
    assert "124 stopped by the guard" in text
