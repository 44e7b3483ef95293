from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from fourge.chat.stream import Stream, text_after
from tests.conftest import byte_tokenizer

TOKENIZER = byte_tokenizer()


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def streamed(stream: Stream, ids: list[int]) -> list[str]:
    pieces = []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    return [*pieces, stream.finish()]


@given(text=st.text(max_size=20))
def test_the_pieces_are_whole_characters_and_make_up_the_text(text: str) -> None:
    pieces = streamed(Stream(TOKENIZER, encode("before")), encode(text))
    assert "".join(pieces) == text.rstrip("\N{REPLACEMENT CHARACTER}")
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces) or (
        "\N{REPLACEMENT CHARACTER}" in text
    )


@given(
    text=st.text(alphabet="abc\u4f60", max_size=30),
    stops=st.lists(st.text(alphabet="abc\u4f60", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_nothing_of_a_stop_string_is_ever_shown(text: str, stops: list[str]) -> None:
    stream = Stream(TOKENIZER, [], stops)
    shown = "".join(streamed(stream, encode(text)))
    # The first to be complete ends the reply; of those complete at once, the one begun first.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        assert shown == text
        assert not stream.stopped
        return
    head = text[: min(ends)]
    assert shown == head[: min(head.find(stop) for stop in stops if stop in head)]
    assert stream.stopped
    assert stream.text == shown


def test_half_a_character_at_the_end_is_dropped() -> None:
    stream = Stream(TOKENIZER, [])
    ids = encode("a\u4f60")
    assert "".join(streamed(stream, ids[:-1])) == "a"
    assert stream.text == "a"


def metaspace_tokenizer() -> Any:
    vocab = {"\u2581": 0, "\u2581a": 1, "a": 2, "x": 3, "\u2581x": 4}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("\u2581", "a"), ("\u2581", "x")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_a_space_that_a_decoder_drops_at_the_start_is_kept_after_other_tokens() -> None:
    tokenizer = metaspace_tokenizer()
    assert tokenizer.decode([1]) == "a"
    assert text_after(tokenizer, [4], [1]) == " a"
    assert streamed(Stream(tokenizer, [4]), [1, 1, 2]) == [" a", " a", "a", ""]
