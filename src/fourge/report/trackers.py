"""A run's events, replayed into a tracker that people already use, through its own library.

The run itself knows nothing of trackers: whoever wants one reads the event file, afterwards or
while it grows, in another process. A tracker that hangs or is down cannot hold up a run.

Steps are sent in the order of the file. Those that were done again after a stop are sent again;
a tracker shows the later value, or both, as it does.
"""

import math
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from fourge.core.errors import ConfigError, FormatError
from fourge.core.events import FILE
from fourge.report.facts import flat
from fourge.report.record import Event, Record, Tail, number, numbers

PROJECT = "fourge"
_POLL_S = 2.0
_ENDED = {"started": False, "finished": True, "failed": True}
_KEPT_OUT = ("v", "t", "step")


class Tracker(Protocol):
    """One run of a tracker."""

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files under RUN/tensorboard."""

    def __init__(self, record: Record) -> None:
        folder = record.folder / "tensorboard"
        self._writer = _library("tensorboard.summary").Writer(str(folder))

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, wall_time=at)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """A run of the experiment ``fourge``, where MLFLOW_TRACKING_URI says."""

    def __init__(self, record: Record) -> None:
        self._mlflow = _library("mlflow")
        self._mlflow.set_experiment(PROJECT)
        self._mlflow.start_run(run_name=record.name)
        self._mlflow.log_params(dict(flat(record.settings())))

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step, timestamp=int(at * 1000))

    def close(self) -> None:
        self._mlflow.end_run()


class Wandb:
    """A run of the project ``fourge``; trackio has the same interface."""

    def __init__(self, record: Record, module: str = "wandb") -> None:
        self._module = _library(module)
        self._module.init(project=PROJECT, name=record.name, config=record.settings())

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        self._module.log(dict(values), step=step)

    def close(self) -> None:
        self._module.finish()


def opened(record: Record, tracker: str) -> Tracker:
    """The tracker of that name.

    Raises:
        ConfigError: its library is not installed.
    """
    if tracker == "tensorboard":
        return TensorBoard(record)
    if tracker == "mlflow":
        return MLflow(record)
    return Wandb(record, tracker)


def send(
    folder: Path, tracker: str, *, follow: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> int:  # fmt: skip
    """Replay a run; with ``follow`` go on until it has ended. The number of steps sent.

    Raises:
        FormatError: there is no record.
        ConfigError: the tracker's library is not installed.
    """
    if not (folder / FILE).is_file():
        raise FormatError(f"{folder / FILE} does not exist.", fix="give the folder of a run")
    target, tail = opened(Record(folder), tracker), Tail(folder / FILE)
    count, ended = 0, False
    try:
        while True:
            for event in tail.new():
                count += _sent(target, event)
                ended = _ENDED.get(str(event.get("kind")), ended)
            if ended or not follow:
                return count
            pause(_POLL_S)
    finally:
        target.close()


def _sent(target: Tracker, event: Event) -> bool:
    step = number(event.get("step"))
    if event.get("kind") != "step" or math.isnan(step):
        return False
    values = {name: value for name, value in numbers(event).items() if name not in _KEPT_OUT}
    target.log(int(step), number(event.get("t"), 0.0), values)
    return True


def _library(name: str) -> Any:
    package = name.split(".", 1)[0]
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{package} is not installed.", fix=f"pip install 'fourge[{package}]'"
        ) from error
