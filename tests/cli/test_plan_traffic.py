import pytest

from fourge.cli.plan_traffic import bytes_per_s, traffic_lines
from fourge.core.errors import ConfigError
from fourge.memory.wanted import Wanted
from tests.conftest import tiny_config


@pytest.mark.parametrize(
    ("text", "speed"),
    [("200Gbit", 25e9), ("200Gbit/s", 25e9), ("25GB", 25e9), (" 2.5 GB/s", 2.5e9)],
)
def test_a_speed_is_read_as_networks_are_sold(text: str, speed: float) -> None:
    assert bytes_per_s(text) == speed


@pytest.mark.parametrize("text", ["fast", "200", "-1GB", "0GB", ".GB", "1.2.3GB", "5MB"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--link"):
        bytes_per_s(text)


def test_a_step_lies_between_hidden_and_added() -> None:
    wanted = Wanted(config=tiny_config("qwen3", tied=True), tokens=16, world_size=2)
    sent = traffic_lines(wanted, 1e6, 2.0)
    link = sent.numbers["link_s"]
    assert sent.numbers["step_s"] == [max(2.0, link), 2.0 + link]
    assert len(sent.lines) == 4
    assert all(len(line) <= 80 for line in sent.lines)
    assert traffic_lines(wanted, None, None).numbers.keys() == {
        "world_size", "gathered", "gathered_in_bf16", "summed",
    }  # fmt: skip


def test_one_process_has_nothing_to_say() -> None:
    wanted = Wanted(config=tiny_config("qwen3", tied=True), tokens=16)
    assert traffic_lines(wanted, 1e9, 1.0).lines == ()
