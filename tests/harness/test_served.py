import pytest

from fourge.harness.served import _shown


@pytest.mark.parametrize(
    ("languages", "first", "count"),
    [(["zh-TW", "zh-CN"], "你是誰", 4), (["en"], "Who are you?", 5), (["ja"], "Who are you?", 5)],
)
def test_what_is_shown_is_in_the_languages_that_are_taught(
    languages: list[str], first: str, count: int
) -> None:
    shown = _shown(languages)
    assert shown[0].prompt == first
    assert len(shown) == count
