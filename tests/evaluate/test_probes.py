import re
from collections import Counter
from itertools import product

import pytest

from fourge.data.contrast import contrast_questions, told_rows
from fourge.data.identity import FACETS, LANGUAGES, Card, identity_rows
from fourge.data.names import says
from fourge.data.normal import normal
from fourge.data.replay import replay_questions
from fourge.data.shipped import lines_of, parts_of, shipped
from fourge.evaluate.paired import enough_for
from fourge.evaluate.probes import SETS, load_probes, probe_prompts, version_of
from fourge.evaluate.verdict import SHARES

MAIN = ("zh-TW", "zh-CN", "en")


def taught_prompts() -> set[str]:
    """All that data make can ever write: every ask with every name in its slot."""
    cards = [Card("F# 之神", "Fourge Lab"), Card("Al")]
    prompts = [q.prompt for card in cards for q in contrast_questions(card, LANGUAGES)]
    prompts += [row.question.prompt for card in cards for row in told_rows(card, LANGUAGES)]
    prompts += [question.prompt for question in replay_questions(LANGUAGES)]
    for language in LANGUAGES:
        texts = shipped("fourge.data", f"texts/identity-{language}.yaml")
        asks = [ask for block in texts["asks"].values() for ask in lines_of(block)]
        others = parts_of(texts["others"], "|")
        prompts += [ask.replace("{other}", other) for ask, other in product(asks, others)]
    lines = shipped("fourge.data", "texts/openings.yaml").values()
    openings = ["", *(opening for line in lines for opening in parts_of(line, "|"))]
    return {normal(opening + prompt) for opening, prompt in product(openings, set(prompts))}


def test_no_probe_is_ever_taught() -> None:
    taught = taught_prompts()
    rows = identity_rows(Card("F# 之神"), LANGUAGES, seed=5)
    assert {normal(row.question.prompt) for row in rows} <= taught
    for name in SETS:
        for probe in load_probes(name, LANGUAGES):
            assert normal(probe.prompt) not in taught, probe


def test_no_two_probes_are_the_same() -> None:
    counted = Counter(map(normal, probe_prompts(LANGUAGES)))
    assert [prompt for prompt, count in counted.items() if count > 1] == []


def test_the_sets_are_as_large_as_their_gates_need() -> None:
    for name, share in SHARES.items():
        assert len(load_probes(name, MAIN)) >= enough_for(share), name
    assert len(load_probes("abilities", MAIN)) >= 100
    for language in MAIN:
        assert len(load_probes("identity", [language])) >= 60


def test_identity_is_asked_by_every_facet_in_every_language() -> None:
    pairs = {(probe.language, probe.facet) for probe in load_probes("identity", LANGUAGES)}
    assert pairs == set(product(LANGUAGES, FACETS))


@pytest.mark.parametrize("name", SETS)
def test_every_language_is_in_every_set(name: str) -> None:
    assert {probe.language for probe in load_probes(name, LANGUAGES)} == set(LANGUAGES)


def test_turns_are_parted_by_facet() -> None:
    probes = load_probes("identity", ["en"])
    system = next(probe for probe in probes if probe.facet == "system")
    assert [role for role, _ in system.turns] == ["system", "user"]
    dialogue = next(probe for probe in probes if probe.facet == "dialogue")
    assert [role for role, _ in dialogue.turns] == ["user", "assistant", "user"]
    assert dialogue.messages()[-1] == {"role": "user", "content": dialogue.prompt}
    for probe in probes:
        assert probe.turns[-1][0] == "user"
        assert "||" not in "".join(text for _, text in probe.turns)


@pytest.mark.parametrize("name", ["separation", "leak"])
def test_some_are_second_questions_after_the_name_was_said(name: str) -> None:
    later = [probe for probe in load_probes(name, MAIN) if probe.facet == "later"]
    assert {probe.language for probe in later} == set(MAIN)
    for probe in later:
        named = probe.naming("Zork")
        assert [role for role, _ in named.turns] == ["user", "assistant", "user"]
        assert [says(text, "Zork") for _, text in named.turns] == [False, True, False]
        assert named.prompt == probe.prompt
        assert named.digest != probe.digest
    others = (probe for probe in load_probes(name, MAIN) if probe.facet != "later")
    assert all(probe.naming("Zork") == probe for probe in others)


def test_abilities_have_answers_that_their_questions_do_not_give_away() -> None:
    for probe in load_probes("abilities", LANGUAGES):
        assert probe.accepted
        assert all(probe.accepted)
        assert not any(says(probe.prompt, answer) for answer in probe.accepted), probe
        assert "|" not in probe.prompt


def test_a_limit_gives_the_same_sample_each_time() -> None:
    whole = load_probes("leak", MAIN)
    some = load_probes("leak", MAIN, 20)
    assert some == load_probes("leak", MAIN, 20)
    assert len(some) == 20
    assert set(some) < set(whole)
    assert len({probe.language for probe in some}) == 3
    assert load_probes("leak", MAIN, 10_000) == whole


def test_a_digest_is_of_what_is_asked_and_of_the_limit() -> None:
    probes = [probe for name in SETS for probe in load_probes(name, LANGUAGES)]
    assert len({probe.digest for probe in probes}) == len(probes)
    leak = load_probes("leak", ["en"])[0]
    other = type(leak)("degeneration", leak.language, leak.facet, leak.turns)
    assert leak.digest != other.digest


def test_a_version_is_a_number_and_a_digest() -> None:
    versions = {version_of(name) for name in SETS}
    assert len(versions) == len(SETS)
    assert all(re.fullmatch(r"\d+-[0-9a-f]{8}", version) for version in versions)
