from pathlib import Path

import pytest

from fourge.core.errors import ConfigError, FourgeError, OutputError
from fourge.shard.agreement import require_agreement, require_one_folder, together, versions
from tests.shard.stubs import Said

FACTS = {"optim.lr": "1e-05", "data": "abc"}


def test_ranks_that_say_the_same_go_on() -> None:
    require_agreement(Said(1, FACTS, FACTS), FACTS)


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_names_the_difference(rank: int) -> None:
    mine, other = (FACTS, {**FACTS, "optim.lr": "0.1"}) if rank == 0 else ({"data": "abc"}, FACTS)
    with pytest.raises(ConfigError, match="do not agree") as caught:
        require_agreement(Said(rank, other), mine)
    assert "optim.lr: rank 0 has 1e-05, rank 1 has" in caught.value.why
    assert "data" not in caught.value.why


def test_versions_are_among_what_is_compared() -> None:
    assert {"fourge", "python", "torch", "transformers"} <= versions().keys()


def test_what_all_can_do_is_done() -> None:
    assert together(Said(0, None, None), lambda: 7) == 7


def test_a_mistake_of_one_rank_is_everybody_s() -> None:
    words = ("a.tsv is empty.", "it has no row", "fill it", 2)
    with pytest.raises(FourgeError) as caught:
        together(Said(0, words), lambda: 7)
    assert caught.value.problem == "Rank 1: a.tsv is empty."
    assert (caught.value.why, caught.value.fix) == ("it has no row", "fill it")


def test_one_s_own_mistake_keeps_its_words_and_status() -> None:
    def fail() -> None:
        error = OutputError("The disk is full.", fix="make room")
        error.exit_code = 5
        raise error

    with pytest.raises(FourgeError, match=r"^The disk is full\.") as caught:
        together(Said(0, None), fail)
    assert caught.value.exit_code == 5


def test_a_bug_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        together(Said(0, None), lambda: 1 / 0)


def test_a_folder_that_all_see_is_one(tmp_path: Path) -> None:
    require_one_folder(Said(0, True), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_another_rank_does_not_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not the same folder") as caught:
        require_one_folder(Said(0, False), tmp_path / "out")
    assert "rank 1" in caught.value.why
