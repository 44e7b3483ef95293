from pathlib import Path

import pytest

from fourge.cli.train_screen import TrainScreen
from fourge.harness.saving import Saved
from fourge.harness.training import Finished, Started
from fourge.train.loop import StepResult

STARTED = Started("3f2a", 40, 11, (3, 2), 93312, 24, 1, 2, "cpu", "float32")
STEP = StepResult(12, 1.5, 1.4, 0.1, 1.0, 1e-5, 0.5, 0.25, None, 64, 9, 2.0)


def shown(capsys: pytest.CaptureFixture[str], *, quiet: bool) -> tuple[str, str]:
    with TrainScreen(quiet=quiet) as screen:
        screen.preparing("reading data", 1, 2)
        screen.preparing("reading data", 2, 2)
        for event in (STARTED, STEP, Saved(Path("x"), 12, 0.1), Finished(12, 2, None)):
            screen.show(event)
    told = capsys.readouterr()
    return told.out, told.err


def test_without_a_terminal_each_event_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capsys, quiet=False)
    assert out == "stopped after step 12 of 40; --resume goes on\n"
    assert err.splitlines() == [
        "reading data",
        "run 3f2a: 93,312 parameters in 24 tensors, 5 rows",
        "on cpu, computing in float32",
        "going on at step 11 of 40",
        "1 rows are longer than data.max_tokens and lose their start",
        "2 earlier answers are context only: the template changes them",
        "step 12/40 loss 1.5000 kl 0.1000 32 tok/s 0 B lr 1.00e-05 norm 0.5 moved 25.0%",
        "checkpoint of step 12 in 0.1 s: x",
    ]


def test_a_quiet_one_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, quiet=True) == ("", "")
