"""``fourge``: the command group, its errors and its exit statuses.

Exit status: 0 ok, 1 a check failed, 2 wrong input, 3 training diverged, 4 another process of the
run is gone, 5 does not fit, 124 stopped by the guard, 130 interrupted, 143 terminated.
"""

import errno
import os
import signal
import sys
from importlib import import_module

import click

from fourge import __version__
from fourge.core.errors import FourgeError

VERBS = {
    "demo": "The whole job on the embedded model.",
    "plan": "What a run will hold in memory, and whether it fits.",
    "step": "One training step, and what each phase of it costs.",
    "train": "Train as a run file says.",
    "experiment": "Teach an identity: attempts, gates, fallback.",
    "runs": "List, show, compare and trace what was run.",
    "chat": "Talk to a model.",
    "report": "A run as one page: curves, memory, gates, origin.",
    "check": "Probe a model, and compare it with its base.",
    "parity": "Compare two ways to compute a model, block by block.",
    "needle": "Hide a secret in a long text, and ask for it.",
    "data": "Make, mix and audit training data.",
    "convert": "Write a model in another format.",
    "inspect": "Say what a file holds.",
    "guard": "Stop a command before it takes the machine's memory.",
    "doctor": "Say what this machine can do.",
    "bench": "Measure against peers, as ratios in one run.",
    "completion": "Print a script that completes commands in your shell.",
}


class Verbs(click.Group):
    """Loads a verb's module when it is called: ``--help`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"fourge.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExit status: 0 ok, 1 a check failed, 2 wrong input, 3 training diverged,\n"
    "4 another process of the run is gone, 5 does not fit,\n"
    "124 stopped by the guard, 130 interrupted, 143 terminated.",
)
@click.version_option(__version__, prog_name="fourge")
def fourge() -> None:
    """Fine-tune every weight of a language model on one machine, in NVFP4.

    New here? Begin with: fourge doctor, then fourge demo.
    """


def _leave(number: int, frame: object) -> None:
    """Asked to end: unwind, so that half-written files are removed."""
    sys.exit(128 + number)


def main() -> None:
    """Run the command line; user mistakes end in a message, never in a traceback."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        status = fourge.main(standalone_mode=False)  # which returns an Exit's, and does not raise
        if status:
            sys.exit(status)
    except FourgeError as error:
        click.echo(f"fourge: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("fourge: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has left; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        click.echo("fourge: the output could not be written: the disk is full.", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(2)
