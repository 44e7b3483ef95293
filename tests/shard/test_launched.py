import subprocess
import sys

import pytest

from fourge.core.errors import ConfigError
from fourge.shard.launched import Launched, launched

SET = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip


def test_torchrun_s_environment_is_a_place_among_others() -> None:
    assert launched(SET) == Launched(3, 4, 1, 2)


@pytest.mark.parametrize(
    "environment",
    [{}, {"RANK": "0"}, {"MASTER_ADDR": "x"}, {**SET, "RANK": "0", "WORLD_SIZE": "1"}],
)
def test_a_process_on_its_own_has_no_place(environment: dict[str, str]) -> None:
    assert launched(environment) is None


def test_half_an_environment_is_refused_with_what_is_missing() -> None:
    half = {name: value for name, value in SET.items() if name != "MASTER_PORT"}
    with pytest.raises(ConfigError, match="no MASTER_PORT"):
        launched(half)
    with pytest.raises(ConfigError, match="WORLD_SIZE is '-2'"):
        launched({**SET, "WORLD_SIZE": "-2"})


def test_finding_out_loads_no_torch() -> None:
    code = "import sys, fourge.shard.launched as l; l.launched(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
