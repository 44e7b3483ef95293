"""What a guard has at hand while it stands watch."""

from dataclasses import dataclass

from fourge.guard.bell import Bell
from fourge.guard.counters import Counters
from fourge.guard.policy import Limits
from fourge.guard.record import Record


@dataclass(frozen=True, slots=True)
class Post:
    counters: Counters
    limits: Limits
    record: Record
    bell: Bell
