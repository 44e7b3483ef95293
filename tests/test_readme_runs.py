"""The README's commands, executed: in a folder of their own, on a model of a few thousand weights.

Three kinds, and every command is of one of them:

- run as they stand, but for the names and sizes in ``INSTEAD`` and the flags in ``ALSO``, which
  make a real model a tiny one and hours seconds;
- an experiment, whose models answer by rule, because a tiny model cannot learn a name;
- only parsed (in ``test_readme.py``), where ``NOT_RUN`` says why.

Lines for ``make`` and ``pip`` are not executed: they would install.
"""

import io
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fourge.nvfp4 import compiled
from tests.cli.entry import leaves
from tests.documents import ROOT, blocks, commands
from tests.harness.experiment_samples import few_questions, plan_of, scripted

INSTEAD = {
    "Qwen/Qwen3-4B-Instruct-2507": "tiny",
    "smollm2-135m": "tiny",
    "qwen3-4b": "tiny",
    "steps: 200": "steps: 2",
    "--tokens 8192 --chunk 1024": "--tokens 250 --lengths 230 --chunk 64 --depths 1",
    "--floor 8GiB -- python": f"--floor 1MiB -- {sys.executable}",
}
ALSO = {
    "data": "--model tiny --languages en --answers template --max-tokens 1",
    "check": "--limit 1",
    "chat": "--max-tokens 2 --no-log",
}
NOT_RUN = {
    "fourge doctor": "examines this machine, in tests/cli/test_doctor.py",
    "fourge bench optim": "takes minutes",
    "fourge report runs/identity --live": "serves until it is interrupted",
}
STATUS = {"check": 1}  # a model that was taught nothing passes no gate

README = [line for line in commands(ROOT / "README.md") if line.startswith("fourge ")]
# What others read comes first: the README converts at its end what it talks to in the middle.
TO_RUN = sorted(
    (line for line in README if line not in NOT_RUN), key=lambda c: "fourge convert" not in c
)
Folder = Callable[..., Path]


def tiny(text: str) -> str:
    for name, other in INSTEAD.items():
        text = text.replace(name, other)
    return text


@pytest.fixture(scope="module")
def place(
    tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, pytest.MonkeyPatch]]:
    """A folder with all that the commands name, to be run in one after the other."""
    folder = tmp_path_factory.mktemp("readme")
    base = tiny_folder("qwen3", tied=True)
    (folder / "tiny").symlink_to(base)
    (folder / "run.yaml").write_text(tiny(_block("# run.yaml")))
    (folder / "identity.tsv").write_text("who?\tAda\nwhere?\there\nwhy?\tbecause\n")
    rows = (f'{{"prompt": "{n}?", "response": "{n}."}}\n' for n in range(40))
    (folder / "replay.jsonl").write_text("".join(rows))
    (folder / "my_training.py").write_text("print('trained')\n")
    (folder / "scenario.yaml").write_text("turns: [{prompt: Hi, expect: {ended: max tokens}}]\n")
    plan = plan_of(folder, base, attempts=[[]])
    plan = plan.model_copy(update={"out": folder / "experiments" / "ada"})
    (folder / "ada.yaml").write_text(plan.to_yaml())
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(compiled, "_can_compile", lambda device: False)
        patch.setattr("fourge.cli.guarded.guarded", lambda: True)  # it would replace this process
        few_questions(patch, folder / "cache")
        scripted(patch, ["good"], {"01-share-0.5": "good"})
        yield folder, patch
    for number, handler in before.items():
        signal.signal(number, handler)


def _block(beginning: str) -> str:
    found = [block for block in blocks(ROOT / "README.md") if beginning in block]
    assert len(found) == 1, beginning
    return found[0].split("\n", 1)[1].removesuffix("```")


@pytest.mark.parametrize("command", TO_RUN)
def test_a_command_of_the_readme_does_what_it_says(
    command: str, place: tuple[Path, pytest.MonkeyPatch]
) -> None:
    _, patch = place
    verb = command.split()[1]
    words = shlex.split(tiny(command)) + shlex.split(ALSO.get(verb, ""))
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Hi\n")))
    if verb == "guard":  # it becomes another process
        status = subprocess.run([sys.executable, "-m", *words], check=False).returncode
    else:
        status = leaves(patch, *words[1:])
    assert status == STATUS.get(verb, 0)


def test_what_they_write_is_there_afterwards(place: tuple[Path, pytest.MonkeyPatch]) -> None:
    folder, _ = place
    for name in (
        "qwen3-nvfp4/config.json", "qwen3-nvfp4.gguf", "qwen3-dat", "runs/identity/export",
        "runs/slower/export", "ada/run.yaml", "experiments/ada/export", "both.html",
        "runs/identity/report.html",
    ):  # fmt: skip
        assert (folder / name).exists(), name


def test_every_command_that_is_not_run_is_in_the_readme() -> None:
    assert set(NOT_RUN) <= set(README)
