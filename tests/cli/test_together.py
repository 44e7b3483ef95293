import click
import pytest

from fourge.cli.together import _one_voice, crew_of, refuse_crew
from fourge.core.crew import ALONE
from fourge.core.errors import ConfigError
from fourge.shard.launched import Launched


def test_a_process_on_its_own_is_its_own_crew() -> None:
    with crew_of(None, "auto") as crew:
        assert crew is ALONE


def test_the_first_rank_says_what_all_have_met() -> None:
    with pytest.raises(ConfigError, match="wrong"), _one_voice(Launched(0, 2, 0)):
        raise ConfigError("wrong")
    with pytest.raises(click.exceptions.Exit) as caught, _one_voice(Launched(1, 2, 1)):
        raise ConfigError("wrong")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("rank", "said", "speaks"), [(0, True, False), (1, False, True)])
def test_of_a_lost_rank_tells_who_noticed_first(rank: int, said: bool, speaks: bool) -> None:
    error = ConfigError("gone")
    error.said = said  # type: ignore[attr-defined]
    expected = ConfigError if speaks else click.exceptions.Exit
    with pytest.raises(expected), _one_voice(Launched(rank, 2, rank)):
        raise error


def test_commands_for_one_process_refuse_several(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_crew("experiment")
    monkeypatch.setattr("fourge.cli.together.launched", lambda: Launched(0, 2, 0))
    with pytest.raises(ConfigError, match="fourge experiment runs in one process"):
        refuse_crew("experiment")
