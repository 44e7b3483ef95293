import subprocess
import sys
from pathlib import Path

import pytest

from fourge.guard.counters import Reading
from fourge.guard.options import OPTIONS, UsageError, guard_argv, settings

GIB = 1 << 30
PLAIN = {option.name: option.default for option in OPTIONS}
SPARK = Reading(120 * GIB, 110 * GIB, 50 * GIB, 0, None, None)


def test_the_defaults_on_a_spark() -> None:
    limits = settings(["true"], PLAIN).limits(SPARK)
    assert (limits.floor, limits.limit, limits.over_s, limits.grace_s) == (8 * GIB, None, 0.0, 20.0)
    assert limits.ask_below == SPARK.total // 100


def test_what_is_given_is_taken() -> None:
    given = {**PLAIN, "limit": "108GiB", "floor": "4G", "over_s": "1.5", "log": "a/b"}
    chosen = settings(["true", "-x"], given)
    assert (chosen.command, chosen.log, chosen.root) == (("true", "-x"), Path("a/b"), Path("/"))
    limits = chosen.limits(SPARK)
    assert (limits.limit, limits.floor, limits.over_s) == (108 * GIB, 4 * GIB, 1.5)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("limit", "108", "--limit: '108' is not a size"), ("floor", "8GB", "--floor: '8GB' is not"),
     ("over_s", "-1", "--over-s: -1 is not a time"), ("grace_s", "soon", "--grace-s: 'soon'"),
     ("recover_s", "nan", "--recover-s: nan"), ("silent_s", "", "--silent-s: ''")],
)  # fmt: skip
def test_nonsense_is_refused_by_name(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(["true"], {**PLAIN, name: text})
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("floor", "120GiB", "there are only 120.00 GiB"), ("limit", "120G", "the machine has 120.00")],
)
def test_lines_that_this_machine_cannot_have_are_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        settings(["true"], {**PLAIN, name: text}).limits(SPARK)


def test_a_floor_above_the_cgroups_limit_is_refused_and_the_rule_knows_the_limit() -> None:
    inside = Reading(120 * GIB, 110 * GIB, 50 * GIB, 0, 6 * GIB, GIB)
    assert settings(["true"], PLAIN).limits(inside).floor == 6 * GIB // 10
    with pytest.raises(UsageError, match=r"there are only 6.00 GiB"):
        settings(["true"], {**PLAIN, "floor": "8GiB"}).limits(inside)


def test_a_command_is_needed() -> None:
    with pytest.raises(UsageError, match="there is no command"):
        settings([], PLAIN)


def test_the_argument_list_names_what_was_given_alone() -> None:
    argv = guard_argv(["sleep", "--", "5"], {"floor": "8GiB", "limit": None})
    assert argv == [sys.executable, "-P", "-m", "fourge.guard", "--floor=8GiB",
                    "--", "sleep", "--", "5"]  # fmt: skip


def test_the_guard_loads_the_standard_library_alone() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import fourge.guard.__main__, fourge.guard.client\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert not loaded - sys.stdlib_module_names - {'fourge'}, loaded\n"
        "ours = {name for name in sys.modules if name.startswith('fourge.')}\n"
        "assert all(name.startswith('fourge.guard') for name in ours), ours"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
