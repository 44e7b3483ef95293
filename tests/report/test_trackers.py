"""Events in other people's trackers, through their own libraries."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fourge.core.errors import ConfigError, FormatError
from fourge.report.trackers import send
from tests.report.example import event, write_lines, write_run


class Spy(ModuleType):
    """Stands for a library: remembers its calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))

    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


@pytest.fixture
def spy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Spy:
    made = Spy(request.param)
    monkeypatch.setitem(sys.modules, request.param, made)
    return made


@pytest.mark.parametrize("spy", ["wandb", "trackio"], indirect=True)
def test_wandb_and_trackio_get_settings_and_every_step(spy: Spy, tmp_path: Path) -> None:
    assert send(write_run(tmp_path / "身份", 3), spy.__name__) == 3
    assert spy.names() == ["init", "log", "log", "log", "finish"]
    assert spy.calls[0][2]["name"] == "身份"
    assert spy.calls[0][2]["config"]["model"] == {"path": "smollm2-135m"}
    values, named = spy.calls[2][1][0], spy.calls[2][2]
    assert named == {"step": 2}
    assert values["kl"] == pytest.approx(0.02 * (1 - 2.718281828 ** (-2)))
    assert values["peak.forward"] > 2 << 30
    assert not {"v", "t", "step", "kind", "run"} & set(values)


@pytest.mark.parametrize("spy", ["mlflow"], indirect=True)
def test_mlflow_gets_flat_settings_and_the_time_of_each_step(spy: Spy, tmp_path: Path) -> None:
    assert send(write_run(tmp_path / "a", 2), "mlflow") == 2
    assert spy.names() == ["set_experiment", "start_run", "log_params", "log_metrics",
                           "log_metrics", "end_run"]  # fmt: skip
    assert spy.calls[2][1][0]["optim.lr"] == "2e-05"
    assert spy.calls[3][2] == {"step": 1, "timestamp": 1763164803000}


def test_tensorboard_reads_back_what_was_sent(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = write_run(tmp_path / "a", 5)
    assert send(folder, "tensorboard") == 5
    found = reader.EventAccumulator(str(folder / "tensorboard"), size_guidance={"tensors": 0})
    found.Reload()
    losses = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    expected = [each["loss"] for each in losses if each["kind"] == "step"]
    events = found.Tensors("loss")
    assert [each.step for each in events] == [1, 2, 3, 4, 5]
    assert [each.tensor_proto.float_val[0] for each in events] == pytest.approx(expected)


@pytest.mark.parametrize("spy", ["wandb"], indirect=True)
def test_a_run_that_goes_on_is_followed_to_its_end(spy: Spy, tmp_path: Path) -> None:
    steps = [event("step", step=at, loss=1.0) for at in (1, 2)]
    ends = event("finished", step=1), event("started", first=2), event("finished", step=2)
    lines = [steps[0], event("saved"), ends[0], ends[1], steps[1], ends[2], event("verdict")]
    more = [lines[:4], lines[:5], lines]
    write_lines(tmp_path / "events.jsonl", lines[:2])
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        write_lines(tmp_path / "events.jsonl", more[len(pauses) - 1])

    assert send(tmp_path, "wandb", follow=True, pause=pause) == 2
    assert len(pauses) == 3
    assert spy.names()[-1] == "finish"


@pytest.mark.parametrize("spy", ["wandb"], indirect=True)
def test_the_tracker_is_closed_when_following_is_interrupted(spy: Spy, tmp_path: Path) -> None:
    def pause(seconds: float) -> None:
        raise KeyboardInterrupt

    write_lines(tmp_path / "events.jsonl", [event("step", step=1)])
    with pytest.raises(KeyboardInterrupt):
        send(tmp_path, "wandb", follow=True, pause=pause)
    assert spy.names() == ["init", "log", "finish"]


def test_a_library_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ConfigError, match=r"pip install 'fourge\[trackio\]'"):
        send(write_run(tmp_path / "a", 2), "trackio")


def test_a_folder_without_a_record_is_refused_before_a_tracker_is_opened(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        send(tmp_path, "nobody")
