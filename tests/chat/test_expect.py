from dataclasses import replace

import pytest

from fourge.chat.expect import Expect, failures
from fourge.chat.session import Answer

ANSWER = Answer(1, "q", "Paris is big.", (1,), "stop", True, 9, 8, 0, 0, 0, 0.1, 0.2)


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        (Expect(contains=["Paris", "Rome"]), "does not contain 'Rome'"),
        (Expect(lacks=["Rome", "Paris"]), "contains 'Paris'"),
        (Expect(matches=["^Paris", "small$"]), "does not match 'small$'"),
        (Expect(ended="max tokens"), "ended by stop, not by max tokens"),
    ],
)
def test_what_does_not_hold_is_said(expect: Expect, says: str) -> None:
    assert failures(ANSWER, expect) == [says]


def test_what_holds_is_not_said() -> None:
    good = Expect(contains=["Paris"], lacks=["Rome"], matches=["b.g"], ended="stop")
    assert failures(ANSWER, good) == []
    assert failures(ANSWER, Expect()) == []
    assert len(failures(replace(ANSWER, reply="Rome", ended="time"), good)) == 4
