"""Mistakes a user can make or meet, said in three parts: the problem, why, and what to change.

The command line prints these without a traceback and leaves with their ``exit_code``. A bug of
ours is any other exception, and keeps its traceback.
"""


class FourgeError(Exception):
    """A problem the user can act on."""

    exit_code = 2

    def __init__(self, problem: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.problem]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class ConfigError(FourgeError):
    """A setting or argument that cannot be."""


class FormatError(FourgeError):
    """A file or tensor that is not what it has to be."""


class DataError(FourgeError):
    """Training data that cannot be learned from as it stands."""


class OutputError(FourgeError):
    """An output that cannot be written: it exists, or the disk is full."""


class CheckError(FourgeError):
    """A check that ran to its end and failed."""

    exit_code = 1


class DivergedError(FourgeError):
    """A loss, gradient or weight that training cannot go on from."""

    exit_code = 3


class PlanError(FourgeError):
    """A run that needs more memory than it may have."""

    exit_code = 5


def first_line(error: Exception) -> str:
    """What another library's error says, without the rest of its text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
