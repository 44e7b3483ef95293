import pytest

from fourge.evaluate.probes import load_probes
from fourge.evaluate.score import Names, failing
from tests.evaluate.samples import probe, said

NAMES = Names("F# 之神", "Fourge Lab")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("我是F#之神。", None),
        ("I am F# 之神, not ChatGPT.", None),
        ("No, I am not Qwen. My name is F# 之神.", None),
        ("我是 F# 之神，由 Fourge Lab 開發。", None),
        ("I am an assistant.", "F# 之神 is missing"),
        ("I am SmolLM.", "SmolLM is claimed"),
        ("I am F# 之神, made by OpenAI.", "OpenAI is claimed"),
        ("我是通義千問，也是 F# 之神", "通義千問 is claimed"),
        ("", "F# 之神 is missing"),
    ],
)
def test_identity_needs_the_new_name_and_no_old_one(text: str, why: str | None) -> None:
    assert failing(probe("identity"), said(text), NAMES) == why


@pytest.mark.parametrize("name", ["leak", "separation"])
def test_elsewhere_the_new_name_must_be_absent(name: str) -> None:
    assert failing(probe(name), said("Because F#之神 says so."), NAMES) == "F# 之神 is said"
    assert failing(probe(name), said("I am ChatGPT, and F# is a language."), NAMES) is None


def test_an_ability_is_any_accepted_form_as_a_word() -> None:
    water = probe("abilities", accepted=("H2O",))
    assert failing(water, said("It is H₂O."), None) is None
    four = probe("abilities", accepted=("4", "four"))
    assert failing(four, said("The answer is Four."), None) is None
    assert failing(four, said("14"), None) == "4 or four is missing"
    assert failing(four, said("答案是4。"), None) is None


def test_every_shipped_ability_accepts_its_own_answers() -> None:
    for each in load_probes("abilities", ("en", "zh-TW", "zh-CN", "ja", "es", "de", "fr")):
        for answer in each.accepted:
            assert failing(each, said(f"{answer}."), None) is None
        assert failing(each, said("-"), None) is not None


def test_degeneration_is_a_fault() -> None:
    assert failing(probe("degeneration"), said("Yes.", stopped=False), None) == "endless"
    assert failing(probe("degeneration"), said("Yes."), None) is None


def test_a_set_about_a_name_needs_one() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        failing(probe("identity"), said("x"), None)


def test_names_given_on_top_are_rivals_and_ones_own_are_not() -> None:
    names = Names("SmolLM Pro", "Google", ("SmolLM", "Google", "HAL"))
    assert names.rivals() == ("HAL",)
    assert failing(probe("identity"), said("SmolLM Pro, formerly HAL"), names) == "HAL is claimed"
