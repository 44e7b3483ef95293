import subprocess

from tests.guard.guarded import python

RINGS = """
import os, signal, time
from fourge.guard.bell import Bell
bell = Bell()
assert bell.wait(0.01) == b""
os.kill(os.getpid(), signal.SIGTERM)
began = time.monotonic()
assert bell.wait(30) == bytes([signal.SIGTERM])
if os.fork() == 0:
    os._exit(0)
assert bell.wait(30) == bytes([signal.SIGCHLD])
assert time.monotonic() - began < 10
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGQUIT)
assert bell.wait(0.05) == b""
"""


def test_the_bell_rings_for_signals_and_the_end_of_children_and_not_for_ctrl_c() -> None:
    subprocess.run(python(RINGS), check=True, timeout=60)


def test_what_nohup_ignores_stays_ignored() -> None:
    script = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from fourge.guard.bell import Bell; bell = Bell()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "assert bell.wait(0.05) == b''"
    )
    subprocess.run(python(script), check=True, timeout=60)
