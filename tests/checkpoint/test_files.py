import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourge.checkpoint import files
from fourge.checkpoint.files import looks_whole, open_state, write_state
from fourge.checkpoint.state import TrainState, digest_of
from fourge.core.errors import FormatError
from fourge.core.files import ReadFile
from fourge.formats.stored import bytes_of
from tests.checkpoint.samples import same, sample
from tests.core.test_files import _cached_bytes


def read_state(path: Path) -> TrainState:
    """All of it at once."""
    stored = open_state(path)
    return TrainState(dict(stored.tensors), stored.meta)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state in several files."""
    monkeypatch.setattr(files, "SHARD", 64)
    write_state(tmp_path, sample())
    return tmp_path


def test_a_state_of_every_type_reads_back_to_the_bit(folder: Path) -> None:
    assert same(read_state(folder), sample())
    names = sorted(path.name for path in folder.iterdir())
    assert names[:3] == ["state.json", "tensors-00001.safetensors", "tensors-00002.safetensors"]


def test_a_state_without_tensors_is_one(tmp_path: Path) -> None:
    write_state(tmp_path, TrainState({}, {"step": 0}))
    assert same(read_state(tmp_path), TrainState({}, {"step": 0}))


def test_what_is_read_can_be_trained_on(folder: Path) -> None:
    value = read_state(folder).tensors["f32"]
    value.zero_()
    assert not value.any()


def test_the_files_are_what_safetensors_reads(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        for name, value in safetensors.torch.load_file(path).items():
            assert bytes_of(value) == bytes_of(sample().tensors[name])


def test_the_index_has_a_digest_for_every_tensor(folder: Path) -> None:
    tensors = json.loads((folder / "state.json").read_bytes())["tensors"]
    for name, value in sample().tensors.items():
        assert tensors[name]["digest"] == digest_of(bytes_of(value))


def test_every_tensor_is_reported_as_it_is_written(tmp_path: Path) -> None:
    told: list[str] = []
    write_state(tmp_path, sample(), told.append)
    assert told == list(sample().tensors)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_a_changed_byte_in_any_file_is_found(folder: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    with pytest.raises(FormatError, match=path.name):
        read_state(folder)
    path.write_bytes(whole)
    assert same(read_state(folder), sample())


def test_every_byte_of_a_header_is_covered(tmp_path: Path) -> None:
    write_state(tmp_path, TrainState({"a": torch.ones(2)}, {"step": 1}))
    path = tmp_path / "tensors-00001.safetensors"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FormatError, match=path.name):
            read_state(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_that_was_cut_or_grew_is_found(folder: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    whole = path.read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for wrong in (cut, whole + b"\0"):
        path.write_bytes(wrong)
        with pytest.raises(FormatError, match=path.name):
            read_state(folder)
        assert not looks_whole(folder)
    path.write_bytes(whole)
    assert looks_whole(folder)


def test_a_file_of_another_size_is_said_with_both_sizes(folder: Path) -> None:
    path = folder / "tensors-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FormatError) as caught:
        read_state(folder)
    size = path.stat().st_size
    assert caught.value.why == f"it has {size} bytes; {size + 3} were written"


def test_a_file_that_is_gone_is_named(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(FormatError, match=f"{path.name} could not be read: No such file"):
            read_state(folder)
        assert not looks_whole(folder)
        path.write_bytes(whole)


def test_a_damaged_tensor_is_named(folder: Path) -> None:
    path = folder / json.loads((folder / "state.json").read_bytes())["tensors"]["i64"]["file"]
    data = path.read_bytes()
    inside = bytes(bytes_of(sample().tensors["i64"]))
    path.write_bytes(data.replace(inside, bytes(len(inside))))
    with pytest.raises(FormatError, match=path.name) as caught:
        read_state(folder)
    assert caught.value.why == "the bytes of i64 do not match their digest"


def test_a_tensor_more_or_less_or_other_is_found(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tensors-00001.safetensors"
    held = safetensors.torch.load_file(path)
    more = {**held, "extra": torch.zeros(1)}
    less = dict(list(held.items())[1:])
    other = {**held, "bf16": held["bf16"].view(torch.int16)}
    for tensors in (more, less, other):
        safetensors.torch.save_file(tensors, path)
        with pytest.raises(FormatError, match=path.name):
            read_state(folder)


def test_the_list_of_tensors_is_held_against_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header's digest finds such a file first; this is what would be found without it."""
    path = folder / "tensors-00001.safetensors"
    held = safetensors.torch.load_file(path)
    for tensors, word in (
        ({**held, "extra": torch.zeros(1)}, "other tensors"),
        ({**held, "bf16": held["bf16"].view(torch.int16)}, "is not bf16"),
        ({**held, "bf16": held["bf16"].T.contiguous().view(3, 4)[:, :2]}, "bf16"),
    ):
        safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path)
        file = ReadFile(path)
        header = bytes(file.read_at(0, 8 + int.from_bytes(file.read_at(0, 8), "little")))
        contents = files._contents(folder)
        contents.files[path.name] = type(contents.files[path.name])(file.nbytes, digest_of(header))
        with pytest.raises(FormatError, match=path.name) as caught:
            dict(files.CheckedTensors(folder, contents))
        assert word in caught.value.why


def test_neither_writing_nor_reading_fills_the_page_cache(tmp_path: Path) -> None:
    state = TrainState({"a": torch.randn(2 << 20)}, {"step": 1})
    write_state(tmp_path, state)
    path = tmp_path / "tensors-00001.safetensors"
    assert _cached_bytes(path) < 1 << 20
    path.read_bytes()
    assert _cached_bytes(path) > 7 << 20
    assert same(read_state(tmp_path), state)
    assert _cached_bytes(path) < 1 << 20
