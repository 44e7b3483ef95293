"""``python -m fourge.guard [options] -- COMMAND...``: the process that watches."""

import argparse
import shutil
import sys
from collections.abc import Sequence

from fourge.guard.counters import CounterError, Counters
from fourge.guard.options import OPTIONS, STATUS, UsageError, settings
from fourge.guard.record import Record
from fourge.guard.watch import watch


def main(arguments: Sequence[str]) -> int:
    """Run the command after ``--`` under guard; the status to leave with."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = _parser().parse_args(arguments[:end])
    try:
        chosen = settings(arguments[end + 1 :], vars(options))
        if shutil.which(chosen.command[0]) is None:
            raise UsageError(f"{chosen.command[0]}: there is no such command")
        with Counters(chosen.root) as counters:
            limits = chosen.limits(counters.read())
            return watch(chosen, counters, limits, Record(chosen.log))
    except (UsageError, CounterError) as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or 'the guard cannot start'}: {error.strerror}"
    sys.stderr.write(f"fourge guard: {problem}\n")
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fourge guard", usage="fourge guard [OPTIONS] -- COMMAND...", epilog=STATUS,
        description="Run COMMAND, and stop it before it takes the machine's memory.",
        allow_abbrev=False,
    )  # fmt: skip
    for option in OPTIONS:
        parser.add_argument(
            option.flag, metavar=option.metavar, default=option.default,
            help=argparse.SUPPRESS if option.hidden else option.help,
        )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
