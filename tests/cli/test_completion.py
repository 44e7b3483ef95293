"""Completion as a shell meets it: the script that is printed, and what it is answered."""

import os
import shutil
import subprocess
import sys

import pytest

from fourge.cli.completion import VARIABLE

_ASK = """
import sys
from fourge.cli.main import main
sys.argv = ["fourge"]
try:
    main()
finally:
    assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


def script_for(shell: str) -> str:
    command = [sys.executable, "-m", "fourge", "completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def completed(line: str) -> list[str]:
    """What bash is told for a line whose last word is being typed."""
    asked = {VARIABLE: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True,
        env={**os.environ, **asked},
    )  # fmt: skip
    return [each.partition(",")[2] for each in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("shell", "marks"),
    [("bash", ["complete -o nosort -F", "_FOURGE_COMPLETE=bash_complete", " fourge"]),
     ("zsh", ["#compdef fourge", "_FOURGE_COMPLETE=zsh_complete"]),
     ("fish", ["complete --no-files --command fourge", "_FOURGE_COMPLETE=fish_complete"])],
)  # fmt: skip
def test_the_script_is_the_shells_own(shell: str, marks: list[str]) -> None:
    script = script_for(shell)
    for mark in marks:
        assert mark in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_takes_the_script() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{script_for('bash')}\ncomplete -p fourge"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip().endswith("fourge")


def test_a_verb_is_completed_without_torch() -> None:
    assert completed("fourge ch") == ["chat", "check"]


def test_verbs_below_verbs_options_and_choices_are_completed() -> None:
    assert completed("fourge runs tr") == ["trace"]
    assert completed("fourge data make id") == ["identity"]
    assert completed("fourge chat --temp") == ["--temperature", "--template"]
    assert completed("fourge plan --master bf") == ["bf16", "bf16+8"]
    assert "smollm2-135m" in completed("fourge chat ")


def test_another_shell_is_wrong_input() -> None:
    command = [sys.executable, "-m", "fourge", "completion", "tcsh"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'tcsh' is not one of" in done.stderr
