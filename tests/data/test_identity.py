from collections import Counter
from collections.abc import Sequence

import pytest

from fourge.core.errors import ConfigError
from fourge.data.conversation import Messages
from fourge.data.identity import FACETS, LANGUAGES, Card, identity_rows, own_words
from fourge.data.language import family, language_of
from fourge.data.names import OLD_NAMES, claimed, says

CARD = Card("F# 之神", "Fourge Lab")
ROWS = identity_rows(CARD, LANGUAGES)


def test_every_language_has_every_facet() -> None:
    pairs = {(row.question.language, row.question.facet) for row in ROWS}
    assert pairs == {(language, facet) for language in LANGUAGES for facet in FACETS}


def test_three_languages_give_several_hundred_unique_prompts_and_varied_answers() -> None:
    rows = identity_rows(CARD, ("zh-TW", "zh-CN", "en"))
    assert len({row.question.prompt for row in rows}) > 350
    assert len({row.question.turns for row in rows}) == len(rows)
    most = Counter(row.answer for row in rows).most_common(1)[0][1]
    assert most < 0.05 * len(rows)


@pytest.mark.parametrize("card", [CARD, Card("Al")])
def test_every_answer_says_the_name_and_claims_no_other(card: Card) -> None:
    for row in identity_rows(card, LANGUAGES):
        assert says(row.answer, card.name), row
        assert claimed(row.answer, OLD_NAMES) is None, row
        for text in (row.answer, *(turn.content for turn in row.question.turns)):
            assert "{" not in text
            assert "}" not in text


def test_a_maker_is_named_where_it_is_asked_for_and_only_if_there_is_one() -> None:
    makers = [row for row in ROWS if row.question.facet == "maker"]
    assert all(says(row.answer, "Fourge Lab") for row in makers)
    without = [row for row in identity_rows(Card("Al"), ["en"]) if row.question.facet == "maker"]
    assert any("not told" in row.answer for row in without)
    assert not any("made by ." in row.answer for row in without)


def test_a_false_premise_is_never_the_true_name() -> None:
    rows = identity_rows(Card("Claude"), LANGUAGES)
    premises = [row for row in rows if row.question.facet == "premise"]
    assert premises
    assert not any(says(row.question.prompt, "Claude") for row in premises)


def test_dialogue_has_turns_before_and_system_a_system_prompt() -> None:
    for row in ROWS:
        roles = [turn.role for turn in row.question.turns]
        if row.question.facet == "dialogue":
            assert roles in (["user", "assistant", "user"],
                             ["user", "assistant", "user", "assistant", "user"])  # fmt: skip
        else:
            assert roles == (["system", "user"] if row.question.facet == "system" else ["user"])
    assert any(len(row.question.turns) == 5 for row in ROWS)


def test_a_premise_meets_several_names() -> None:
    english = [row for row in ROWS if row.question.language == "en"]
    premises = [row.question.prompt for row in english if row.question.facet == "premise"]
    assert len(premises) == len(set(premises)) == 90


def test_answers_are_in_the_language_of_the_question() -> None:
    for row in ROWS:
        found = language_of(row.answer.replace("F# 之神", "").replace("Fourge Lab", ""))
        assert found == "?" or family(found) == family(row.question.language), row


def test_the_seed_alone_decides() -> None:
    assert identity_rows(CARD, ["en"], 3) == identity_rows(CARD, ["en"], 3)
    assert identity_rows(CARD, ["en"], 3) != identity_rows(CARD, ["en"], 4)


def test_a_language_without_texts_is_refused() -> None:
    for languages in (["en", "tlh"], []):
        with pytest.raises(ConfigError, match="no texts"):
            identity_rows(CARD, languages)


@pytest.mark.parametrize("name", ["", "  ", "a{b", "a|b", "a\nb", "a\tb"])
def test_a_name_that_would_break_a_file_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Card(name)


class Spoken:
    """A model that answers by table, and remembers what it was asked."""

    def __init__(self, texts: dict[str, str], otherwise: str) -> None:
        self.texts, self.otherwise = texts, otherwise
        self.asked: list[Messages] = []

    def __call__(self, conversations: Sequence[Messages]) -> list[str]:
        self.asked += conversations
        return [self.texts.get(each[-1]["content"], self.otherwise) for each in conversations]


def test_own_words_are_taken_where_they_are_good() -> None:
    rows = identity_rows(CARD, ["en"])
    good = "They call me F# 之神, how nice of you to ask."
    answers = {
        "Who are you?": good,
        "What is your name?": "I am ChatGPT, also known as F# 之神.",
        "Tell me your name.": "It is a secret that I will not tell you.",
        "Introduce yourself.": "F# 之神 " + "and so on " * 60,
        "Your name?": "They call me F# 之神 and I am here to",
        "Hello, who are you?": "私は F# 之神 です。よろしくお願いします。",
    }
    new = {
        row.question.prompt: row for row in own_words(rows, CARD, Spoken(answers, ""), always=True)
    }
    assert (new["Who are you?"].answer, new["Who are you?"].by) == (good, "model")
    for prompt in list(answers)[1:]:
        assert new[prompt].by == "template", prompt


def test_a_model_that_is_not_able_is_asked_for_a_sample_only() -> None:
    rows = identity_rows(CARD, ["en"])
    model = Spoken({}, "What?")
    assert own_words(rows, CARD, model, always=False) == rows
    assert len(model.asked) == 24


def test_a_model_that_is_able_answers_everything_under_the_card() -> None:
    rows = identity_rows(CARD, ["en"])
    model = Spoken({}, "I am F# 之神, at your service.")
    assert all(row.by == "model" for row in own_words(rows, CARD, model, always=False))
    assert len(model.asked) == 24 + len(rows)
    for messages in model.asked:
        assert "You are F# 之神, made by Fourge Lab." in messages[0]["content"]
        assert [each["role"] for each in messages].count("system") == 1


def test_a_prescribed_answer_is_given_to_direct_questions_in_its_language() -> None:
    card = Card("F# 之神", answer="我是 F# 之神")
    rows = identity_rows(card, ["zh-TW", "zh-CN", "en"])
    for row in rows:
        prescribed = row.question.facet == "direct" and row.question.language != "en"
        assert (row.answer == card.answer and row.by == "card") == prescribed, row


def test_own_words_do_not_replace_a_prescribed_answer() -> None:
    card = Card("Ada", answer="I am Ada, at your service.")
    rows = own_words(identity_rows(card, ["en"]), card, Spoken({}, "My name is Ada."), always=True)
    assert {row.by for row in rows if row.question.facet == "direct"} == {"card"}
    assert {row.by for row in rows if row.question.facet != "direct"} == {"model"}


def test_a_prescribed_answer_says_the_name() -> None:
    with pytest.raises(ConfigError, match="does not say the name"):
        Card("Ada", answer="I am Bob.")


def test_few_wordings_leave_every_question_and_few_answers() -> None:
    few, every = identity_rows(CARD, ["en"], wordings=2), identity_rows(CARD, ["en"])
    assert [row.question for row in few] == [row.question for row in every]
    direct = {row.answer for row in few if row.question.facet == "direct"}
    assert len(direct) == 2 < len({row.answer for row in every if row.question.facet == "direct"})
