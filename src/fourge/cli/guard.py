"""``fourge guard``: watch any command, and stop it before it takes the machine's memory."""

import os
import sys

import click

from fourge.guard.options import OPTIONS, STATUS, guard_argv


def _options() -> list[click.Parameter]:
    return [
        click.Option(
            [option.flag], metavar=option.metavar, help=option.help, default=option.default,
            show_default=option.default is not None, hidden=option.hidden,
        )
        for option in OPTIONS
    ]  # fmt: skip


def _become_guard(command: tuple[str, ...], **options: str | None) -> None:
    """Replaced by the process that watches: nothing of this one, its memory least, stays."""
    sys.stdout.flush()
    os.execv(sys.executable, guard_argv(command, options))


guard = click.Command(
    "guard",
    callback=_become_guard,
    params=[
        *_options(),
        click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED,
                       metavar="-- COMMAND..."),
    ],
    context_settings={"allow_interspersed_args": False},
    help="Run COMMAND, and stop it before it takes the machine's memory.\n\n"
    "When little is left, a trainer of ours is told to drop caches and to save; then any "
    "command is asked to leave (SIGTERM); then all of its processes are killed. The guard "
    "leaves after memory came back.",
    epilog=STATUS,
)  # fmt: skip
