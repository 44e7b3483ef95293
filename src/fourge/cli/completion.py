"""``fourge completion``: the script with which a shell completes our commands.

The script asks this program at every Tab, by setting a variable; so verbs, options and choices are
always those that are installed. No torch is loaded to answer.
"""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_FOURGE_COMPLETE"  # click's own name for it
_HELP = """Print the script that completes commands, options and files in bash, zsh or fish.

Keep it where the shell looks for such scripts:

\b
fourge completion bash > ~/.local/share/bash-completion/completions/fourge
fourge completion zsh > "${fpath[1]}/_fourge"
fourge completion fish > ~/.config/fish/completions/fourge.fish

Or for this shell alone: eval "$(fourge completion bash)"
"""


@click.command(help=_HELP, epilog="Exit status: 0 printed, 2 wrong input.")
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Let click write it."""
    made = get_completion_class(shell)
    assert made is not None, "the choices are those that click knows"
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, "fourge", VARIABLE).source())
