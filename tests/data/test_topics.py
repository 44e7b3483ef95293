from hypothesis import given
from hypothesis import strategies as st

from fourge.data.topics import MOST, topics


def test_one_topic_for_many_prompts_is_seen() -> None:
    prompts = [f"Tell me about UFO {word}" for word in ("news", "films", "maps", "books")]
    assert topics(prompts) == {"ufo": 4}


def test_han_pairs_are_terms_and_question_words_are_not() -> None:
    prompts = ["什麼是黑洞", "黑洞有多大", "如何觀察黑洞", "什麼是音樂"]
    assert topics(prompts) == {"黑洞": 3, "other": 1}


def test_prompts_that_share_nothing_are_other() -> None:
    assert topics(["apples", "bridges", "clouds"]) == {"other": 3}
    assert topics([]) == {}


@given(st.lists(st.sampled_from(["red car", "red hat", "blue car", "tall tree", "x"]), max_size=30))
def test_every_prompt_is_counted_once(prompts: list[str]) -> None:
    found = topics(prompts)
    assert sum(found.values()) == len(prompts)
    assert len(found) <= MOST + 1
