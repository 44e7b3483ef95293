import io
import json
import sys

import pytest

from fourge.bench import step_worker


def test_a_line_is_a_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = iter([3.0, 2.0])
    monkeypatch.setitem(step_worker.SIDES, "plain", lambda batch, length: lambda: next(losses))
    monkeypatch.setattr(sys, "argv", ["worker", "plain", "2", "8"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("step\nstep\n"))
    step_worker.main()
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["loss"] for report in reports] == [3.0, 2.0]
    assert all(report["seconds"] >= 0 for report in reports)


@pytest.mark.model
@pytest.mark.slow
def test_both_sides_train_the_same_model_on_the_same_tokens() -> None:
    plain, ours = step_worker.SIDES["plain"](1, 16), step_worker.SIDES["light"](1, 16)
    assert ours() == pytest.approx(plain(), rel=0.1)  # what NVFP4 costs an untrained text
