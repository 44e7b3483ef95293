from fourge.data.conversation import Row, asked
from fourge.data.identity import LANGUAGES
from fourge.data.openings import every_second, once_more, opened
from fourge.data.records import Turn


def test_an_opening_stands_before_what_is_asked_as_the_language_writes_it() -> None:
    assert opened(asked("Who are you?", "identity", "direct", "en"), 0).prompt == "Hi! Who are you?"
    assert opened(asked("你是誰", "identity", "direct", "zh-TW"), 2).prompt == "想請教一下，你是誰"
    for language in LANGUAGES:
        prompts = {opened(asked("?", "identity", "direct", language), n).prompt for n in range(40)}
        assert len(prompts) >= 5
        assert all(len(prompt) > 1 and "|" not in prompt for prompt in prompts)


def test_what_is_learned_is_asked_once_more_with_the_same_answer() -> None:
    rows = [Row(asked(f"q{n}", "identity", "direct", "en"), f"a{n}", "template") for n in range(30)]
    turns = (Turn("user", "first"), Turn("assistant", "yes"), Turn("user", "second"))
    later = Row(asked("x", "identity", "dialogue", "en"), "a", "template")
    later = Row(type(later.question)(turns, "identity", "dialogue", "en"), "a", "template")
    both = once_more([*rows, later])
    assert both[:31] == [*rows, later]
    assert [row.answer for row in both[31:]] == [row.answer for row in rows]
    assert all(row.question.prompt.endswith(f" q{n}") for n, row in enumerate(both[31:]))


def test_half_of_what_is_held_to_the_base_has_an_opening() -> None:
    questions = [asked(f"q{n}", "replay", "science", "en") for n in range(60)]
    found = every_second(questions)
    assert found[::2] == questions[::2]
    assert all(f.prompt.endswith(f" {q.prompt}")
               for f, q in zip(found[1::2], questions[1::2], strict=True))  # fmt: skip
    assert len({each.prompt.split("q")[0] for each in found}) > 10
