from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.chat.conversation import Span, Template, agreed, ids_of
from fourge.core.errors import DataError
from fourge.data.records import Message
from tests.chat.samples import TOKENIZERS
from tests.conftest import byte_tokenizer
from tests.data.templates import MISTRAL_SYSTEM_LAST, channels, mistral

TEMPLATES = {name: Template(make()) for name, make in TOKENIZERS.items()}
HELLO = [Message("user", "hello")]


def said_in_bytes(template: Template, text: str) -> Span:
    ids = [token for byte in text for token in template.renderer.encode(byte)]
    return Span(text, tuple(ids), said=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_spans_are_the_templates_text_and_keep_the_tokens_that_were_said(name: str) -> None:
    template = TEMPLATES[name]
    said = said_in_bytes(template, " the thing" if name == "mistral" else "the thing")
    known = [*template.prompt(HELLO), said]
    messages = [*HELLO, Message("assistant", template.content(HELLO, said.text))]
    assert messages[-1].content == "the thing"
    closed = template.closed(messages, known)
    assert closed[1] == said
    assert len(said.ids) > len(template.renderer.encode(said.text))  # not as the tokenizer would
    after = [*messages, Message("user", "and then?")]
    spans = template.prompt(after, closed)
    assert spans[:2] == closed[:2]
    assert ids_of(spans)[: len(ids_of(closed))] == ids_of(closed)
    asked = template.renderer.text(after, add_generation_prompt=True)
    for some, shown in ((closed, template.renderer.text(messages)), (spans, asked)):
        assert "".join(span.text for span in some) == shown
        assert template.tokenizer.decode(ids_of(some)) == shown


def test_thoughts_that_the_template_drops_are_not_kept() -> None:
    template = TEMPLATES["qwen3"]
    said = said_in_bytes(template, "<think>hm</think>\n\nyes")
    known = [*template.prompt(HELLO), said]
    messages = [*HELLO, Message("assistant", said.text)]
    assert template.closed(messages, known)[1] == said
    spans = template.prompt([*messages, Message("user", "why?")], known)
    assert spans[0] == known[0]
    assert not any(span.said for span in spans)
    assert spans[1].text.startswith("yes<|im_end|>")


def test_tokens_are_kept_up_to_where_the_template_writes_something_else() -> None:
    template = TEMPLATES["llama3"]  # which trims
    said = said_in_bytes(template, "well \n")
    known = [*template.prompt(HELLO), said]
    spans = template.closed([*HELLO, Message("assistant", said.text)], known)
    assert spans[1] == Span("well", said.ids[:4], said=True)
    assert spans[2].text == "<|eot_id|>"


def test_what_ends_an_answer_and_what_follows_are_tokenised_together() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}h{{ m['content'] }}<|im_end|>"
        "{% else %}{{ m['content'] }}<|im_end|>t{% endif %}{% endfor %}"
    )
    template = Template(tokenizer)
    messages = [*HELLO, Message("assistant", "yes")]
    closed = template.closed(messages, [*template.prompt(HELLO), said_in_bytes(template, "yes")])
    assert closed[-1].text == "<|im_end|>t"
    spans = template.prompt([*messages, *HELLO], closed)
    assert spans[2].text == "<|im_end|>thhello<|im_end|>"
    assert spans[2].ids[:2] == tuple(template.renderer.encode("<|im_end|>th"))


def test_another_beginning_keeps_nothing() -> None:
    template = TEMPLATES["smollm2"]
    known = [*template.prompt(HELLO), said_in_bytes(template, "hi")]
    other = [Message("system", "be brief"), *HELLO, Message("assistant", "hi")]
    (only,) = template.closed(other, known)
    assert not only.said
    assert only.text == template.renderer.text(other)


def test_a_template_that_moves_the_system_text_is_followed() -> None:
    template = Template(mistral(MISTRAL_SYSTEM_LAST))
    messages = [Message("system", "S"), Message("user", "one")]
    said = said_in_bytes(template, " two")
    known = [*template.prompt(messages), said]
    more = [*messages, Message("assistant", "two"), Message("user", "three")]
    spans = template.prompt(more, known)
    assert "".join(span.text for span in spans) == template.renderer.text(
        more, add_generation_prompt=True
    )


texts = st.text(alphabet="ab\u4f60\u00e9", max_size=12)


@given(said=texts, rest=texts)
def test_as_many_tokens_agree_as_make_up_a_beginning(said: str, rest: str) -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer(said, add_special_tokens=False)["input_ids"]

    def text(count: int) -> str:
        return str(tokenizer.decode(ids[:count]))

    best = max(n for n in range(len(ids) + 1) if rest.startswith(text(n)))
    assert agreed(text, len(ids), rest) == best


def test_every_token_that_ends_an_answer_is_known() -> None:
    template = TEMPLATES["llama3"]
    config: Any = type("Config", (), {"eos_token_id": [7, 9]})
    to_id = template.tokenizer.convert_tokens_to_ids
    assert template.stop_ids(config) == {7, 9, to_id("<|eot_id|>"), to_id("<|end_of_text|>")}
    config.eos_token_id = None
    assert template.stop_ids(config) == {to_id("<|eot_id|>"), to_id("<|end_of_text|>")}
    assert channels().convert_tokens_to_ids("<|end|>") in Template(channels()).stop_ids(config)


@pytest.mark.parametrize("text", ["", " \n", "hi <|im_end|>"])
def test_a_question_that_cannot_be_asked_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        TEMPLATES["smollm2"].question(text)


@pytest.mark.parametrize(
    ("template", "problem"),
    [(None, "no chat template"), ("{% if %}", "refuses"),
     ("{{ raise_exception('no') }}", "refuses"),
     ("{% for m in messages %}{{ m['role'] }}{% endfor %}", "as it stands")],
)  # fmt: skip
def test_a_template_that_is_missing_or_broken_is_refused_at_once(
    template: str | None, problem: str
) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(DataError, match=problem):
        Template(tokenizer)
