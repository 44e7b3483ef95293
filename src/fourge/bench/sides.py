"""Sides of a comparison that are processes of their own: each does a job for every line it is sent.

A side answers a line with one line of JSON. Apart, they share no memory, and asked in turn they
share the machine's good and bad moments.
"""

import json
import subprocess
import sys
from typing import Any


def start(module: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process that runs one of our modules and waits for lines."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def ask(side: "subprocess.Popen[str]", line: str) -> dict[str, Any]:
    """Have a side do a job; its answer."""
    assert side.stdin is not None, "piped"
    assert side.stdout is not None, "piped"
    side.stdin.write(line + "\n")
    side.stdin.flush()
    answer = side.stdout.readline()
    if not answer:
        raise RuntimeError("a benchmark process ended early")
    report: dict[str, Any] = json.loads(answer)
    return report


def stop(side: "subprocess.Popen[str]") -> None:
    side.kill()
    side.communicate()


def answer(report: dict[str, Any]) -> None:
    """A side's own end: report what was done."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
