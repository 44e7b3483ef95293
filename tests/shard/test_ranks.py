import threading

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from fourge.core.errors import ConfigError
from fourge.shard.launched import Launched
from fourge.shard.ranks import RankLostError, require_all_here, watching
from tests.shard.stubs import Said


def met(*places: Launched, wait_s: float = 5.0) -> list[str]:
    """What each rank said that came to the same store."""
    store, said = HashStore(), [""] * len(places)

    def come(number: int) -> None:
        try:
            require_all_here(store, places[number], wait_s)
        except ConfigError as error:
            said[number] = str(error)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def test_as_many_as_were_started_meet() -> None:
    assert met(*(Launched(rank, 3, rank) for rank in range(3))) == ["", "", ""]


def test_ranks_of_different_worlds_are_named_to_each() -> None:
    for text in met(Launched(0, 2, 0), Launched(1, 3, 0)):
        assert "different numbers of processes" in text
        assert "for 2" in text
        assert "for 3" in text


def test_who_does_not_come_is_not_waited_for_for_ever() -> None:
    (text,) = met(Launched(0, 2, 0), wait_s=0.2)
    assert "1 of 2 ranks came" in text


@pytest.mark.parametrize("text", ["[/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer"])
def test_a_closed_connection_is_a_lost_rank_and_one_says_so(text: str) -> None:
    ranks = Said(0, None)
    ranks._store = HashStore()
    said = []
    for _ in range(2):
        with pytest.raises(RankLostError, match="Another rank is gone") as caught, ranks.watched():
            raise RuntimeError(text)
        said.append(caught.value.said)
        assert caught.value.exit_code == 4
    assert said == [False, True]


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(RuntimeError, match="shape mismatch"), watching(None):
        raise RuntimeError("shape mismatch")
