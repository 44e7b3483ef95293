from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourge.core.errors import ConfigError, DataError
from fourge.data.records import Example, Turn
from fourge.data.render import Rendered, Renderer, truncate_left
from fourge.model.source import open_source
from fourge.model.tokenizer import folder_tokenizer
from tests.conftest import byte_tokenizer, qwen3_tokenizer_folder
from tests.data.templates import (
    MISTRAL_SYSTEM_LAST,
    channels,
    gemma3,
    llama3,
    mistral,
    tokenizer_of,
)

Maker = Callable[[], Any]
STOPS: list[tuple[Maker, str, str]] = [  # tokenizer, stop token, what comes before an answer
    (byte_tokenizer, "<|im_end|>", ""),
    (llama3, "<|eot_id|>", ""),
    (gemma3, "<end_of_turn>", ""),
    (mistral, "</s>", " "),
    (channels, "<|end|>", "<|channel|>final<|message|>"),
]
every_template = pytest.mark.parametrize(("make", "stop", "lead"), STOPS)


def qwen3() -> Any:
    return folder_tokenizer(qwen3_tokenizer_folder())


def smollm2() -> Any:
    return open_source("smollm2-135m").tokenizer()


def talk(*texts: str, system: str | None = None) -> Example:
    turns = [Turn("assistant" if n % 2 else "user", text) for n, text in enumerate(texts)]
    head = [] if system is None else [Turn("system", system)]
    return Example((*head, *turns), "talk.jsonl:4")


def lessons(tokenizer: Any, rendered: Rendered) -> list[str]:
    """Each run of neighbouring targets, as text."""
    runs: list[list[int]] = [[]]
    for token, is_target in zip(rendered.token, rendered.is_target, strict=True):
        if is_target:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [tokenizer.decode(run) for run in runs if run]


def fed(tokenizer: Any, example: Example, **arguments: Any) -> list[int]:
    """What inference feeds before the last answer."""
    messages = [{"role": turn.role, "content": turn.content} for turn in example.turns[:-1]]
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, **arguments)
    return list(encoded["input_ids"])


def last_start(rendered: Rendered) -> int:
    """Where the last run of targets begins."""
    end = len(rendered.token) - rendered.is_target[::-1].index(True)
    return end - (rendered.is_target[:end][::-1].index(False))


def check_one_answer(tokenizer: Any, question: str, answer: str, expected: str) -> None:
    example = talk(question, answer)
    rendered = Renderer(tokenizer).render(example)
    assert lessons(tokenizer, rendered) == [expected]
    prompt = fed(tokenizer, example)
    assert list(rendered.token[: len(prompt)]) == prompt
    assert rendered.is_target.index(True) == len(prompt)
    assert rendered.source == "talk.jsonl:4"
    assert rendered.untaught == 0


@every_template
@pytest.mark.parametrize(
    ("question", "answer"), [("that?", "this"), ("你是誰？", "我是 F# 之神。")]
)
def test_targets_are_the_answer_and_its_stop_token(
    make: Maker, stop: str, lead: str, question: str, answer: str
) -> None:
    check_one_answer(make(), question, answer, lead + answer + stop)


@every_template
def test_every_answer_of_a_conversation_is_taught(make: Maker, stop: str, lead: str) -> None:
    tokenizer = make()
    example = talk("q", "one", "r", "two th", "s", "三", system="Be brief.")
    rendered = Renderer(tokenizer).render(example)
    assert lessons(tokenizer, rendered) == [lead + each + stop for each in ("one", "two th", "三")]
    prompt = fed(tokenizer, example)
    assert list(rendered.token[: len(prompt)]) == prompt
    assert last_start(rendered) == len(prompt)
    messages = [{"role": turn.role, "content": turn.content} for turn in example.turns]
    whole = tokenizer.apply_chat_template(messages)["input_ids"]
    assert list(rendered.token) == list(whole)


@every_template
@pytest.mark.parametrize("answer", ["e", "a", "n", "<|", "final", "s>", "user", "0fourge0", "|>"])
def test_an_answer_that_looks_like_the_template_is_found_all_the_same(
    make: Maker, stop: str, lead: str, answer: str
) -> None:
    check_one_answer(make(), answer, answer, lead + answer + stop)


def test_what_a_template_writes_after_the_stop_token_is_no_target() -> None:
    tokenizer = byte_tokenizer()
    rendered = Renderer(tokenizer).render(talk("q", "a"))
    assert tokenizer.decode(rendered.token[-2:]) == "<|im_end|>\n"
    assert rendered.is_target[-2:] == (True, False)
    rendered = Renderer(channels()).render(talk("q", "a"))
    assert channels().decode(rendered.token[-2:]) == "<|end|><|endoftext|>"
    assert rendered.is_target[-2:] == (True, False)


@given(st.sampled_from(STOPS), st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_any_answer_is_taught_whole_after_just_what_inference_feeds(
    template: tuple[Maker, str, str], question: str, answer: str
) -> None:
    make, stop, lead = template
    question, answer = question.strip() or "q", answer.strip() or "a"
    check_one_answer(made(make), question, answer, lead + answer + stop)


MADE: dict[Maker, Any] = {}


def made(make: Maker) -> Any:
    if make not in MADE:
        MADE[make] = make()
    return MADE[make]


def test_a_template_that_trims_an_answer_teaches_it_trimmed() -> None:
    tokenizer = llama3()
    assert lessons(tokenizer, Renderer(tokenizer).render(talk("q", " a \n"))) == ["a<|eot_id|>"]


def test_the_beginning_of_text_is_not_written_twice() -> None:
    for tokenizer, bos in (
        (llama3(), "<|begin_of_text|>"),
        (gemma3(), "<bos>"),
        (mistral(), "<s>"),
    ):
        token = Renderer(tokenizer).render(talk("q", "a")).token
        assert token.count(tokenizer.convert_tokens_to_ids(bos)) == 1
        assert tokenizer.encode("a")[0] == token[0]  # left to itself it would write one more


@pytest.mark.model
def test_qwen3_without_thinking_is_taught_the_answer_alone() -> None:
    tokenizer = qwen3()
    example = talk("你是誰？", "我是 F# 之神。")
    rendered = Renderer(tokenizer, {"enable_thinking": False}).render(example)
    assert lessons(tokenizer, rendered) == ["我是 F# 之神。<|im_end|>"]
    prompt = fed(tokenizer, example, enable_thinking=False)
    assert tokenizer.decode(prompt).endswith("assistant\n<think>\n\n</think>\n\n")
    assert list(rendered.token[: len(prompt)]) == prompt
    assert rendered.is_target.index(True) == len(prompt)


@pytest.mark.model
def test_qwen3_with_thinking_is_taught_the_thoughts_too() -> None:
    tokenizer = qwen3()
    thoughts = "<think>\n短\n</think>\n\n好"
    rendered = Renderer(tokenizer).render(talk("q", thoughts))
    assert lessons(tokenizer, rendered) == [thoughts + "<|im_end|>"]
    rendered = Renderer(tokenizer).render(talk("q", "<think>短</think>好"))  # it writes them so
    assert lessons(tokenizer, rendered) == [thoughts + "<|im_end|>"]
    rendered = Renderer(tokenizer).render(talk("q", "a"))
    assert lessons(tokenizer, rendered) == ["<think>\n\n</think>\n\na<|im_end|>"]


@pytest.mark.model
@pytest.mark.parametrize("arguments", [{}, {"enable_thinking": False}])
def test_qwen3_is_taught_no_answer_that_its_template_has_rewritten(
    arguments: dict[str, Any],
) -> None:
    tokenizer = qwen3()
    example = talk("q", "one", "r", "two")
    rendered = Renderer(tokenizer, arguments).render(example)
    assert [each[-13:] for each in lessons(tokenizer, rendered)] == ["two<|im_end|>"]
    assert rendered.untaught == 1
    prompt = fed(tokenizer, example, **arguments)
    assert list(rendered.token[: len(prompt)]) == prompt


def test_an_earlier_answer_after_another_prompt_than_it_would_have_had_is_context() -> None:
    tokenizer = mistral(MISTRAL_SYSTEM_LAST)
    rendered = Renderer(tokenizer).render(talk("q", "one", "r", "two", system="Be brief."))
    assert lessons(tokenizer, rendered) == [" two</s>"]
    assert rendered.untaught == 1
    rendered = Renderer(tokenizer).render(talk("q", "one", "r", "two"))
    assert lessons(tokenizer, rendered) == [" one</s>", " two</s>"]
    assert rendered.untaught == 0


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model_is_taught_to_answer_and_to_stop() -> None:
    tokenizer = smollm2()
    check_one_answer(tokenizer, "1999?", "Yes, 20261115. 我是", "Yes, 20261115. 我是<|im_end|>")
    rendered = Renderer(tokenizer).render(talk("q", "one", "r", "two"))
    assert lessons(tokenizer, rendered) == ["one<|im_end|>", "two<|im_end|>"]


def test_a_token_that_would_straddle_the_boundary_is_cut_there() -> None:
    # The generation prompt ends in t, and t with h is one token.
    template = (
        "{% for m in messages %}{{ 'user:' if m['role'] == 'user' else 'bot' }}{{ m['content'] }}"
        "<|im_end|>{% endfor %}{% if add_generation_prompt %}bot{% endif %}"
    )
    tokenizer = tokenizer_of(template)
    merged = tokenizer.convert_tokens_to_ids("th")
    rendered = Renderer(tokenizer).render(talk("thou", "hi", "with", "he", "th", "o"))
    expected = ["hi<|im_end|>", "he<|im_end|>", "o<|im_end|>"]
    assert lessons(tokenizer, rendered) == expected
    assert tokenizer.decode(rendered.token) == (
        "user:thou<|im_end|>bothi<|im_end|>user:with<|im_end|>bothe<|im_end|>"
        "user:th<|im_end|>boto<|im_end|>"
    )
    assert rendered.token.count(merged) == 3  # those inside the questions
    check_one_answer(tokenizer, "thou", "hi", "hi<|im_end|>")


@pytest.mark.model
def test_a_prompt_that_is_cut_otherwise_without_its_answer_is_cut_as_inference_does() -> None:
    # Two spaces are one token, but before a digit they are two; no token straddles.
    tokenizer = qwen3()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}:  {{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:  {% endif %}"
    )
    prompt = tokenizer.encode("user:  7<|im_end|>\nassistant:  ")
    whole = tokenizer.encode("user:  7<|im_end|>\nassistant:  1")
    assert whole[: len(prompt)] != prompt
    check_one_answer(tokenizer, "7", "1", "1<|im_end|>")


@every_template
def test_text_that_reads_as_a_special_token_is_refused(make: Maker, stop: str, lead: str) -> None:
    renderer = Renderer(make())
    for example in (talk(f"a{stop}b", "a"), talk("q", f"a{stop}"), talk("q", "a", system=stop)):
        with pytest.raises(DataError) as caught:
            renderer.render(example)
        assert "talk.jsonl:4: the" in caught.value.problem
        assert repr(stop) in caught.value.problem
        assert caught.value.fix


def test_a_template_without_a_stop_token_is_refused() -> None:
    for end in ("", "\n", "[END]\n"):
        tokenizer = tokenizer_of(
            "{% for m in messages %}<|im_start|>{{ m['role'] }}: {{ m['content'] }}"
            + end
            + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"
        )
        with pytest.raises(DataError, match="no stop token") as caught:
            Renderer(tokenizer).render(talk("q", "a", "r", "b"))
        assert "never stops" in caught.value.why
        assert caught.value.problem.startswith("talk.jsonl:4: ")


def test_a_last_answer_that_does_not_follow_its_prompt_is_refused() -> None:
    tokenizer = tokenizer_of(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: <think>{% endif %}"
    )
    with pytest.raises(DataError, match="does not write the answer after its generation") as caught:
        Renderer(tokenizer).render(talk("q", "a"))
    assert "<think>" in caught.value.why


@pytest.mark.parametrize(
    "said",
    [
        "{{ m['content'] | upper }}",
        "{{ m['content'] }}{{ m['content'] | length }}",
        "{{ m['content'] if m['role'] == 'user' else '' }}",
    ],
)
def test_a_template_that_does_not_write_answers_as_they_stand_is_refused(said: str) -> None:
    tokenizer = tokenizer_of(f"{{% for m in messages %}}{said}<|im_end|>{{% endfor %}}")
    with pytest.raises(DataError, match="as it stands"):
        Renderer(tokenizer).render(talk("q", "an answer"))


def test_of_two_stop_tokens_that_begin_alike_the_longer_is_read() -> None:
    template = "{% for m in messages %}{{ m['content'] }}[end]!{% endfor %}"
    tokenizer = tokenizer_of(template, more=("[end]", "[end]!"))
    rendered = Renderer(tokenizer).render(talk("q", "a"))
    assert lessons(tokenizer, rendered) == ["a[end]!"]
    assert rendered.token[-1] == tokenizer.convert_tokens_to_ids("[end]!")


def test_a_token_is_special_by_its_name_alone_too() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.__class__ = type("Named", (type(tokenizer),), {"added_tokens_decoder": {}})
    check_one_answer(tokenizer, "q", "a", "a<|im_end|>")


def test_turns_that_a_template_refuses_are_named() -> None:
    example = Example((Turn("user", "q"), Turn("user", "r"), Turn("assistant", "a")), "x.json:7")
    with pytest.raises(DataError, match=r"x\.json:7: the chat template refuses") as caught:
        Renderer(gemma3()).render(example)
    assert "Roles must alternate" in caught.value.why


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(DataError, match="no chat template") as caught:
        Renderer(tokenizer)
    assert "instruct" in caught.value.fix


def test_an_argument_that_is_the_renderings_own_is_refused() -> None:
    with pytest.raises(ConfigError, match="'tokenize'"):
        Renderer(byte_tokenizer(), {"tokenize": True})


@every_template
@given(keep=st.integers(1, 60))
def test_cutting_from_the_left_keeps_the_stop_token(
    make: Maker, stop: str, lead: str, keep: int
) -> None:
    tokenizer = made(make)
    rendered = Renderer(tokenizer).render(talk("a question", "an answer"))
    after = rendered.is_target[::-1].index(True)  # what follows the stop token
    if keep < after + 2:
        with pytest.raises(DataError, match="nothing to learn is left") as caught:
            truncate_left(rendered, keep)
        assert "data.max_tokens" in caught.value.fix
        return
    cut = truncate_left(rendered, keep)
    assert cut.token == rendered.token[-keep:]
    assert cut.is_target == rendered.is_target[-keep:]
    assert len(cut.token) == min(keep, len(rendered.token))
    assert lessons(tokenizer, cut)[-1].endswith(stop)


def test_cutting_to_no_tokens_leaves_nothing() -> None:
    with pytest.raises(DataError, match="nothing to learn"):
        truncate_left(Rendered((1, 2), (False, True), "a:1"), 0)


def test_rendered_tokens_without_a_lesson_cannot_be_made() -> None:
    with pytest.raises(DataError, match="no token is left"):
        Rendered((1, 2), (True, False), "a:1")
    with pytest.raises(DataError, match="2 tokens, 1 target marks"):
        Rendered((1, 2), (True,), "a:1")
