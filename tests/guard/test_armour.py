import subprocess
import sys

from tests.guard.guarded import log, python, run
from tests.guard.trees import Machine

ARMED = """
import gc, sys
from fourge.guard import armour
print(armour.put_on(), gc.isenabled())
"""
UNPRIVILEGED = """
import resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
os.setgid(65534)
os.setuid(65534)
"""


def test_what_is_refused_is_told_and_not_fatal() -> None:
    """As a user with no privileges; where the tests are one already, that is the same."""
    script = "import os\nif os.getuid() == 0:\n    import fourge.guard.armour\n"
    script += "".join(f"    {line}\n" for line in UNPRIVILEGED.strip().split("\n")) + ARMED
    done = subprocess.run(python(script), capture_output=True, text=True, check=True)
    assert "'real-time priority'" in done.stdout
    assert "'no OOM kill'" in done.stdout
    assert done.stdout.endswith("False\n")


def test_the_log_says_what_was_not_granted(machine: Machine) -> None:
    run(machine, [sys.executable, "-c", ""])
    known = {"memory locked", "real-time priority", "highest priority", "no OOM kill"}
    assert set(log(machine)[0]["not_granted"]) <= known
