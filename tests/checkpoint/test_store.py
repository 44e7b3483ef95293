import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fourge.checkpoint import files
from fourge.checkpoint.state import TrainState
from fourge.checkpoint.store import checkpoints, latest, load, save
from fourge.core.errors import FormatError, OutputError
from fourge.formats.safetensors_file import write_safetensors
from tests.checkpoint.samples import names, same, sample


def test_a_checkpoint_is_named_for_its_step_and_reads_back(tmp_path: Path) -> None:
    path = save(tmp_path / "new" / "folder", sample(123))
    assert path == tmp_path / "new" / "folder" / "step-000123"
    assert same(load(path), sample(123))
    assert names(path.parent) == ["step-000123"]
    assert save(tmp_path, sample(1234567)).name == "step-1234567"


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, sample(5, seed=1))
    path = save(tmp_path, sample(5, seed=2))
    assert same(load(path), sample(5, seed=2))
    assert names(tmp_path) == ["step-000005"]


def test_the_old_one_has_its_name_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = save(tmp_path, sample(5, seed=1))
    seen: list[bool] = []
    save(
        tmp_path,
        sample(5, seed=2),
        progress=lambda name: seen.append(same(load(path), sample(5, seed=1))),
    )
    assert seen == [True] * len(sample().tensors)


def test_the_name_is_forced_to_the_disk_after_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, (tmp_path / "step-000001").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    save(tmp_path, sample(1))
    hidden = f".step-000001.{os.getpid()}.partial"
    for name in ("tensors-00001.safetensors", "state.json", hidden):
        assert (name, False) in synced
    assert synced[-2:] == [(tmp_path.name, True), (tmp_path.parent.name, True)]


@pytest.mark.parametrize("replaces", [False, True])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    old = save(tmp_path, sample(2 if replaces else 1, seed=1))

    def fill(path: Path, *arguments: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_safetensors", fill)
    with pytest.raises(OutputError, match="disk is full"):
        save(tmp_path, sample(2, seed=2))
    assert names(tmp_path) == [old.name]
    assert load(old).meta["seed"] == 1


def test_a_write_that_the_system_cuts_off_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import resource, sys, torch; from pathlib import Path\n"
        "from fourge.checkpoint.state import TrainState\n"
        "from fourge.checkpoint.store import save\n"
        "from fourge.core.errors import OutputError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "state = TrainState({'a': torch.zeros(100_000)}, {'step': 1})\n"
        "try:\n    save(Path(sys.argv[1]), state)\n"
        "except OutputError as error:\n    sys.exit(error.exit_code)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == OutputError.exit_code
    assert names(tmp_path) == []


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def stop(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, sample(1), progress=stop)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="could not be written"):
        save(tmp_path / "file", sample(1))


def test_a_killed_process_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.checkpoint.killed_writer", str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, cwd=Path(__file__).parents[2])


def test_saving_makes_no_second_copy_of_the_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the host the file is written from the memory of the tensor itself."""
    value = torch.arange(1000.0)
    written: list[int] = []

    def watch(path: Path, records: Any, values: Any) -> None:
        def each() -> Any:
            for tensor in values:
                written.append(tensor.data_ptr())
                yield tensor

        write_safetensors(path, records, each())

    monkeypatch.setattr(files, "write_safetensors", watch)
    save(tmp_path, TrainState({"a": value, "b": value[500:]}, {"step": 1}))
    assert written == [value.data_ptr(), value[500:].data_ptr()]


def test_checkpoints_are_listed_by_step_and_nothing_else_is(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "nowhere") == []
    assert latest(tmp_path) is None
    for step in (2_000_000, 10, 999_999, 2):
        (tmp_path / f"step-{step:06d}").mkdir()
    foreign = (".step-000005.1.partial", "step-5", "step-0000005", "step-000005x", "step-٠٠٠٠٠٥")
    for name in foreign:
        (tmp_path / name).mkdir()
    (tmp_path / "step-000007").write_text("a file")
    found = ["step-000002", "step-000010", "step-999999", "step-2000000"]
    assert [path.name for path in checkpoints(tmp_path)] == found
    assert latest(tmp_path) == tmp_path / "step-2000000"


def damage(path: Path) -> None:
    file = path / "tensors-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_damage_is_said_with_the_last_whole_checkpoint_before_it(tmp_path: Path) -> None:
    first, second, third = (save(tmp_path, sample(step)) for step in (100, 200, 300))
    save(tmp_path, sample(400))
    (second / "state.json").unlink()
    damage(third)
    with pytest.raises(FormatError, match=r"step-000300/tensors-00001\.safetensors is dam") as hit:
        load(third)
    assert hit.value.why == "the bytes of parameter do not match their digest"
    assert f"goes on from {first}, " in hit.value.fix


def test_damage_with_nothing_before_it_is_said_so(tmp_path: Path) -> None:
    path = save(tmp_path, sample(100))
    save(tmp_path, sample(200))
    damage(path)
    with pytest.raises(FormatError) as hit:
        load(path)
    assert hit.value.fix == "restore it from a copy"


def test_a_checkpoint_that_is_not_there_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="step-000009"):
        load(tmp_path / "step-000009")
