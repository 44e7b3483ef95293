import subprocess
import sys
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


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.strip() == "fourge, version 0.1.0"


@pytest.mark.parametrize(
    ("error", "status"),
    [(FormatError("bad"), 2), (CheckError("no"), 1), (KeyboardInterrupt(), 130),
     (click.Abort(), 130), (BrokenPipeError(), 0)],
)  # fmt: skip
def test_each_ending_has_its_status(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def fail(**kwargs: object) -> None:
        raise error

    monkeypatch.setattr(module.fourge, "main", fail)
    monkeypatch.setattr(sys.stderr, "close", lambda: None)
    with pytest.raises(SystemExit) as caught:
        module.main()
    assert caught.value.code == status
