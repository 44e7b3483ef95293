"""What several processes send each other in a step, for ``fourge plan --world-size``."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fourge.core.errors import ConfigError
from fourge.core.units import size

if TYPE_CHECKING:
    from fourge.memory.wanted import Wanted

_SPEED = re.compile(r"([0-9.]+)\s*(Gbit|GB)(?:/s)?")


@dataclass(frozen=True, slots=True)
class Sent:
    """For people, and for ``--json``."""

    lines: tuple[str, ...]
    numbers: dict[str, Any]


def bytes_per_s(text: str) -> float:
    """A link's speed, as 200Gbit or 25GB: by powers of ten, as networks are sold.

    Raises:
        ConfigError: it is not a speed.
    """
    match = _SPEED.fullmatch(text.strip())
    number = float(match[1]) if match and match[1].count(".") < 2 and match[1] != "." else 0.0
    if match is None or number <= 0:
        raise ConfigError(f"--link is {text!r}.", fix="a speed, as 200Gbit or 25GB (per second)")
    return number * (1e9 if match[2] == "GB" else 1e9 / 8)


def traffic_lines(wanted: "Wanted", speed: float | None, step_s: float | None) -> Sent:
    """What each rank sends; with a link's speed, how long that takes."""
    if wanted.world_size == 1:
        return Sent((), {})
    from fourge.memory.traffic import traffic

    sent = traffic(wanted)
    numbers: dict[str, Any] = {
        "world_size": wanted.world_size, "gathered": sent.gathered,
        "gathered_in_bf16": sent.gathered_in_bf16, "summed": sent.summed,
    }  # fmt: skip
    lines = [
        f"each of {wanted.world_size} ranks sends {size(sent.total)} a step: weights "
        f"{size(sent.gathered)}",
        f"(in bf16 {size(sent.gathered_in_bf16)}), gradients {size(sent.summed)}",
    ]
    if speed is not None:
        numbers["link_s"] = sent.seconds(speed)
        lines.append(f"on the link: {numbers['link_s']:.2f} s")
        if step_s is not None:
            most, least = step_s + numbers["link_s"], max(step_s, numbers["link_s"])
            numbers["step_s"] = [least, most]
            lines.append(f"a step: {least:.2f} s if all of it is hidden, {most:.2f} s if none")
    return Sent(tuple(lines), numbers)
