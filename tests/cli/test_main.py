import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from fourge.cli import main as module
from fourge.core.errors import CheckError, FormatError


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fourge", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_help_lists_every_verb_and_loads_no_torch() -> None:
    script = (
        "import sys; sys.argv = ['fourge', '--help']\n"
        "from fourge.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'gguf'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for verb in module.VERBS:
        assert verb in done.stdout
    assert "Exit status: 0 ok, 1 a check failed" in done.stdout


@pytest.mark.parametrize("verb", module.VERBS)
def test_every_verb_has_help_that_fits_80_columns_and_loads_no_torch(verb: str) -> None:
    script = (
        f"import sys; sys.argv = ['fourge', '{verb}', '--help']\n"
        "from fourge.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert not leave.code\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "Usage:" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_importing_the_package_is_light() -> None:
    script = "import sys, fourge; assert 'torch' not in sys.modules; print(fourge.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0.1.0"


def test_wrong_words_leave_with_two_and_no_traceback() -> None:
    for args in (["fly"], ["convert", "x"], ["inspect", "/nowhere/at/all"], ["inspect", "--no"]):
        done = run(*args)
        assert done.returncode == 2, args
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()


def test_a_reader_that_leaves_is_no_failure(tiny_folder: Callable[..., Path]) -> None:
    command = f"{sys.executable} -m fourge inspect {tiny_folder('qwen3')} --all | head -1"
    script = f"set -o pipefail; {command}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("weight")


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_conversion_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "fourge", "convert", "smollm2-135m", str(tmp_path / "out"),
               "--to", "safetensors"]  # fmt: skip
    # A shell starts background jobs with Ctrl-C ignored, and a child inherits that.
    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=_heed_interrupts)
    while process.poll() is None and not any(tmp_path.iterdir()):
        time.sleep(0.05)
    process.send_signal(number)
    _, text = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 143), text
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.strip() == "fourge, version 0.1.0"


@pytest.mark.parametrize(
    ("error", "status"),
    [(FormatError("bad"), 2), (CheckError("no"), 1), (KeyboardInterrupt(), 130),
     (click.Abort(), 130), (BrokenPipeError(), 0), (OSError(28, "full"), 2)],
)  # fmt: skip
def test_each_ending_has_its_status(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def fail(**kwargs: object) -> None:
        raise error

    monkeypatch.setattr(module.fourge, "main", fail)
    monkeypatch.setattr(os, "dup2", lambda one, two: None)
    with pytest.raises(SystemExit) as caught:
        module.main()
    assert caught.value.code == status
