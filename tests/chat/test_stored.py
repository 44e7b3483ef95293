from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from fourge.chat import stored
from fourge.chat.feed import CacheKind
from fourge.chat.session import Limits
from fourge.chat.stored import load_session, save_session
from fourge.core.errors import ConfigError, FormatError, FourgeError, OutputError
from tests.chat.samples import session_of

SHORT = Limits(max_tokens=6)


@pytest.mark.parametrize("cache", ["plain", "fp8"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3", "mistral"])
def test_a_session_restored_goes_on_with_the_same_logits_bit_for_bit(
    name: str, cache: CacheKind, tmp_path: Path
) -> None:
    config = {} if name == "qwen3" else {"sliding_window": 9}
    session = session_of(name, cache=cache, config=config)
    session.ask("hello", limits=SHORT)
    session.ask("and then?", limits=SHORT)
    save_session(session, tmp_path / "s.safetensors")
    other = session_of(name, cache=cache, config=config)
    load_session(other, tmp_path / "s.safetensors")
    assert (other.messages, other.turns, other.spans) == (
        session.messages, session.turns, session.spans,
    )  # fmt: skip
    assert other.feed.ids == session.feed.ids
    for one, two in zip(session.feed.cache.layers, other.feed.cache.layers, strict=True):
        assert one.get_seq_length() == two.get_seq_length()
    mine, theirs = session.ask("last", limits=SHORT), other.ask("last", limits=SHORT)
    assert mine.ids == theirs.ids
    assert mine.reused == theirs.reused > 0
    assert torch.equal(session.feed.feed([5]), other.feed.feed([5]))


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    session = session_of()
    session.ask("hello", limits=SHORT)
    save_session(session, tmp_path / "s.safetensors")
    tensors = load_file(tmp_path / "s.safetensors")
    assert torch.equal(tensors["layer.1.keys"], session.feed.cache.layers[1].keys)
    assert bytes(tensors["session"].tolist()).startswith(b'{"format": 1')


def test_a_session_without_a_word_can_be_saved_too(tmp_path: Path) -> None:
    save_session(session_of(), tmp_path / "s.safetensors")
    other = session_of()
    load_session(other, tmp_path / "s.safetensors")
    assert other.messages == []
    other.ask("hello", limits=SHORT)


def test_another_models_session_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    session, other = session_of(), session_of()
    session.ask("hello", limits=SHORT)
    other.ask("something", limits=SHORT)
    save_session(session, tmp_path / "s.safetensors")
    with torch.no_grad():
        other.feed.model.model.norm.weight[0] += 1
    held, messages = list(other.feed.ids), list(other.messages)
    with pytest.raises(ConfigError, match="another model"):
        load_session(other, tmp_path / "s.safetensors")
    assert (other.feed.ids, other.messages) == (held, messages)


def test_another_kind_of_cache_is_refused(tmp_path: Path) -> None:
    save_session(session_of(), tmp_path / "s.safetensors")
    with pytest.raises(ConfigError, match="plain cache") as caught:
        load_session(session_of(cache="fp8"), tmp_path / "s.safetensors")
    assert "--cache plain" in caught.value.fix


def test_a_file_is_not_written_over_unasked(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    save_session(session_of(), path)
    with pytest.raises(OutputError, match="exists"):
        save_session(session_of(), path)
    save_session(session_of(), path, overwrite=True)


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    session = session_of()
    save_file({"x": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(FormatError, match="not a session"):
        load_session(session, tmp_path / "other.safetensors")
    with pytest.raises(FormatError, match="could not be read"):
        load_session(session, tmp_path / "nothing.safetensors")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [(b'"role": "user"', b'"role": "boss"', "boss"), (b'"format": 1', b'"format": 9', "format 9")],
)
def test_a_sound_file_that_says_what_cannot_be_is_refused(
    old: bytes, new: bytes, says: str, tmp_path: Path
) -> None:
    session, path = session_of(), tmp_path / "s.safetensors"
    session.ask("hello", limits=SHORT)
    save_session(session, path)
    tensors = load_file(path)
    text = bytearray(bytes(tensors["session"].tolist()).replace(old, new))
    tensors["session"] = torch.frombuffer(text, dtype=torch.uint8)
    del tensors["digest"]
    save_file({**tensors, "digest": stored._digest(tensors)}, path)
    before = list(session.messages)
    with pytest.raises(FormatError) as caught:
        load_session(session, path)
    assert says in str(caught.value)
    assert session.messages == before


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "s.safetensors"
    session = session_of()
    session.ask("hello", limits=Limits(max_tokens=2))
    save_session(session, path)
    return path.read_bytes()


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), cut=st.booleans(), bit=st.integers(0, 7))
def test_any_truncation_or_flipped_bit_is_found(
    saved: bytes, tmp_path_factory: pytest.TempPathFactory, place: float, cut: bool, bit: int
) -> None:
    position = int(place * len(saved))
    if saved.find(b"__metadata__") <= position < saved.find(b"layer.0"):
        return  # a remark for other readers, which is not read here
    broken = bytearray(saved)
    if cut:
        del broken[position:]
    else:
        broken[position] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "broken.safetensors"
    path.write_bytes(broken)
    session = session_of()
    with pytest.raises(FourgeError):
        load_session(session, path)
    assert session.messages == []
