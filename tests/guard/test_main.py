from pathlib import Path

import pytest

from fourge.guard.__main__ import main
from tests.guard.trees import Machine


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no command"),
        (["--"], "there is no command"),
        (["--", "no-such-command-anywhere"], "there is no such command"),
        (["--floor=lots", "--", "true"], "--floor: 'lots' is not a size"),
        (["--floor=64GiB", "--", "true"], "there are only 64.00 GiB in all"),
        (["--log=/nowhere/log", "--", "true"], "/nowhere/log: No such file or directory"),
    ],
)
def test_wrong_usage_is_two_with_one_line(
    machine: Machine, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main([f"--root={machine.root}", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("fourge guard: ")
    assert err.count("\n") == 1


def test_a_machine_that_cannot_be_read_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"--root={tmp_path}", "--", "true"]) == 2
    assert "proc/meminfo cannot be opened" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--unknown", "--", "true"], ["--flo=8G", "--", "true"]])
def test_unknown_options_are_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
