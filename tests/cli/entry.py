"""The program, as it is entered from a shell."""

import sys

import pytest

from fourge.cli import main as module


def leaves(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """The status that the program leaves with."""
    monkeypatch.setattr(sys, "argv", ["fourge", *args])
    try:
        module.main()
    except SystemExit as leave:
        return int(leave.code or 0)
    return 0
