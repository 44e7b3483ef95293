"""Tasks of lm-evaluation-harness as gates: base and tuned on the same items, in pairs.

The harness (an extra of the installation, ``tasks``) knows thousands of tasks: how each is asked
and how an answer is scored. What it reports of a model is a mean and its error. Two such means
forget that both models saw the same items, so here its scores are taken item by item, and compared
like those of every other gate (``paired``).

The metric is acc_norm, acc or exact_match, the first of them that a task has, else another of its
own, as long as what the task reports is the mean over its items. A perplexity or a corpus BLEU is
not: it cannot be paired, and a task that has nothing else is refused.

One name is one gate: the items of a group (mmlu) are pooled. Where a task reads an answer in
several ways ("filters"), the first counts. Prompts are those of the harness, without a chat
template. Nothing is cached: the harness alone knows what an item depends on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy

from fourge.core.errors import ConfigError, first_line
from fourge.core.process import trim_heap
from fourge.evaluate.check import Progress, Server, load_served, path_of_base
from fourge.evaluate.verdict import Gate, gate_of_numbers, gate_of_rights

PREFERRED = ("acc_norm", "acc", "exact_match")
_AT_ONCE = 8
_SEED = 1234  # the harness's own
Item = tuple[str, int]  # the part of a group, or the task itself; the number of the item in it


@dataclass(frozen=True, slots=True)
class Task:
    """A task that the harness can load."""

    name: str
    spec: str  # what the harness finds it by: its name, or the path of its file
    manager: Any


@dataclass(frozen=True, slots=True)
class Scores:
    """One metric of one model, by item."""

    of: dict[Item, float]
    lower_is_better: bool = False


Measured = dict[str, Scores]  # by metric


def find_tasks(named: Sequence[str]) -> list[Task]:
    """Tasks by their names, or by the paths of YAML files; their data is fetched if need be.

    Raises:
        ConfigError: the harness is not installed, or cannot load one of them.
    """
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ConfigError(
            "Tasks need lm-evaluation-harness, which is not installed.",
            why=first_line(error),
            fix="pip install 'fourge[tasks]'",
        ) from error
    # The index of what is shipped takes seconds to read, and a file needs none of it.
    manager = TaskManager(include_defaults=not all(map(_is_file, named)))
    tasks = [_task(each, manager) for each in dict.fromkeys(named)]
    for task in tasks:
        _require_loads(task)
    return tasks


def _is_file(named: str) -> bool:
    return Path(named).suffix in (".yaml", ".yml")


def _task(named: str, manager: Any) -> Task:
    if _is_file(named):
        return Task(Path(named).stem, str(Path(named).absolute()), manager)
    return Task(named, named, manager)


def _require_loads(task: Task) -> None:
    """Before a weight is read: a task is code and data of others, and may fail in any way."""
    try:
        task.manager.load([task.spec])
    except Exception as error:
        raise ConfigError(
            f"The task {task.name} cannot be loaded.",
            why=f"{type(error).__name__}: {first_line(error)}",
            fix="lm-eval ls tasks lists the names; a file of your own must end in .yaml",
        ) from error


def task_gates(
    model: str,
    base: str,
    tasks: Sequence[Task],
    *,
    margin: float = 0.05,
    limit: int | None = None,
    served_by: Server = "fourge",
    progress: Progress,
) -> list[Gate]:
    """One gate a task; ``limit`` takes its first items only.

    Raises:
        FormatError: a model cannot be opened.
        ConfigError: a task has no score for each item.
    """
    before = _measure(base, tasks, limit, progress, path=path_of_base(model))
    for task, one in zip(tasks, before, strict=True):
        choose_metric(task.name, one)  # what cannot be compared is refused before the next model
    after = _measure(model, tasks, limit, progress, served_by)
    sides = zip(tasks, before, after, strict=True)
    return [task_gate(task.name, one, two, margin) for task, one, two in sides]


def _measure(
    model: str,
    tasks: Sequence[Task],
    limit: int | None,
    progress: Progress,
    served_by: Server = "fourge",
    path: str = "auto",
) -> list[Measured]:
    loaded, tokenizer = load_served(model, served_by, path)
    found = []
    for done, task in enumerate(tasks):
        progress(f"{task.name}, {Path(model).name}", done, len(tasks))
        found.append(measure(loaded, tokenizer, task, limit))
    del loaded
    trim_heap()
    return found


def measure(model: Any, tokenizer: Any, task: Task, limit: int | None = None) -> Measured:
    """What a model in memory scores on each item of a task.

    The harness's ``simple_evaluate`` does the same, and asks git and pip about this machine.
    """
    from lm_eval.evaluator import evaluate
    from transformers import set_seed

    set_seed(_SEED)  # where a task shuffles or samples, it does so alike for both models
    found = task.manager.load([task.spec])
    for part in found["tasks"].values():
        part.set_fewshot_seed(_SEED)
    asked = _without_bars(model, tokenizer)
    results = evaluate(lm=asked, task_dict=found, limit=limit, log_samples=True, bootstrap_iters=0)
    return pooled(results)


def _without_bars(model: Any, tokenizer: Any) -> Any:
    """A model as the harness asks it; there is a progress bar already."""
    from lm_eval.models.huggingface import HFLM

    asked = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=_AT_ONCE)
    for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
        setattr(asked, kind, partial(getattr(asked, kind), disable_tqdm=True))
    return asked


def pooled(results: dict[str, Any]) -> Measured:
    """The metrics that all parts of a task have, over the items of all of them."""
    parts = [_of_part(results, part, rows) for part, rows in results["samples"].items()]
    return {
        metric: Scores(
            {item: score for part in parts for item, score in part[metric].of.items()},
            parts[0][metric].lower_is_better,
        )
        for metric in parts[0]
        if all(metric in part for part in parts)
    }


def _of_part(results: dict[str, Any], part: str, rows: Sequence[dict[str, Any]]) -> Measured:
    reading = rows[0]["filter"]
    rows = [row for row in rows if row["filter"] == reading]
    found = {}
    for metric in rows[0]["metrics"]:
        scores: list[Any] = [row.get(metric) for row in rows]
        higher_is_better = results["higher_is_better"][part].get(metric)
        reported = results["results"][part].get(f"{metric},{reading}")
        if higher_is_better is not None and _is_mean(reported, scores):
            numbered = zip(rows, scores, strict=True)
            of = {(part, int(row["doc_id"])): float(score) for row, score in numbered}
            found[metric] = Scores(of, lower_is_better=not higher_is_better)
    return found


def _is_mean(reported: Any, scores: Sequence[Any]) -> bool:
    if not all(isinstance(each, Real | numpy.bool_) for each in (reported, *scores)):
        return False
    mean = sum(map(float, scores)) / len(scores)
    return math.isclose(reported, mean, rel_tol=1e-6, abs_tol=1e-9)


def task_gate(name: str, base: Measured, tuned: Measured, margin: float) -> Gate:
    """Right-or-wrong items by their disagreements, any other numbers by a bootstrap."""
    metric = choose_metric(name, base, tuned)
    one, two = base[metric], tuned[metric]
    before, after = ([scores.of[item] for item in one.of] for scores in (one, two))
    title = f"task {name}"
    if one.lower_is_better or not {*before, *after} <= {0.0, 1.0}:
        gate = gate_of_numbers(title, before, after, margin, lower_is_better=one.lower_is_better)
    else:
        gate = gate_of_rights(title, [*map(bool, before)], [*map(bool, after)], margin)
    return replace(gate, note=f"{metric}: {gate.note}")


def choose_metric(name: str, *sides: Measured) -> str:
    """The first of the preferred metrics that every side has, else the task's first.

    Raises:
        ConfigError: there is none.
    """
    shared = [metric for metric in sides[0] if all(metric in side for side in sides)]
    if not shared:
        raise ConfigError(
            f"The task {name} has no score for each item.",
            why="only means over items can be compared in pairs; a perplexity is none",
            fix=f"name a task with one of {', '.join(PREFERRED)}, or with a mean of its own",
        )
    return next((metric for metric in PREFERRED if metric in shared), shared[0])
