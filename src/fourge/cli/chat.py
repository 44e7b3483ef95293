"""``fourge chat``: talk to a model."""

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fourge.cli.chat_options import Options, chat_options
from fourge.cli.options import MODEL
from fourge.cli.screen import bar, calm_libraries
from fourge.core.errors import CheckError

if TYPE_CHECKING:
    from fourge.chat.load import Loaded
    from fourge.checkpoint.source import Opened
    from fourge.cli.chat_talk import Talk
    from fourge.config.scenario import Scenario


@click.command(epilog="Exit status: 0 ok, 1 an expectation failed, 2 wrong input, 130 interrupted.")
@click.argument("model", type=MODEL)
@chat_options
def chat(model: str, **given: Any) -> None:
    """Talk to MODEL.

    MODEL is a transformers folder, a hub id, a .gguf, a .dat, an NVFP4 export,
    smollm2-135m (the embedded model), a training checkpoint, or the folder of a run,
    which stands for its latest checkpoint. Without --prompt, --script or --replay the
    questions are typed, or read from standard input; /help says what else can be typed.
    """
    options = Options(**given)
    options.require_one_way()
    arguments = options.template_arguments()
    scenario = None
    if options.script:
        from fourge.config.scenario import load_scenario

        scenario = load_scenario(options.script)
    calm_libraries()
    signal.signal(signal.SIGHUP, _terminal_gone)
    with ExitStack() as ending:
        talk = _talk(model, options, arguments)
        ending.callback(talk.leave)
        talk.begin(scenario.system if scenario else options.system)
        if scenario:
            _play(talk, scenario)
        elif options.replay:
            _replay(talk, options.replay)
        elif options.prompts:
            for prompt in options.prompts:
                talk.ask(prompt, echo=len(options.prompts) > 1)
        else:
            _converse(talk)


def _terminal_gone(number: int, frame: object) -> None:
    """Unwind, so that what was said is logged and saved."""
    sys.exit(128 + number)


def _talk(model: str, options: Options, arguments: dict[str, Any]) -> "Talk":
    """Everything that can be refused without a weight is, and then the model is loaded."""
    from fourge.chat.conversation import Template
    from fourge.chat.sampling import Sampling
    from fourge.chat.session import Limits, Session, context_of
    from fourge.checkpoint.source import open_any
    from fourge.cli.chat_talk import Talk
    from fourge.core.files import refuse_existing

    sampling = Sampling(
        options.temperature, options.top_k, options.top_p, options.min_p,
        options.repetition_penalty, options.seed,
    )  # fmt: skip
    limits = Limits(options.max_tokens, options.seconds, options.stops)
    if options.save:
        refuse_existing(options.save, overwrite=options.overwrite)
    opened = open_any(model)
    context_of(opened.source.config, options.window)
    template = Template(opened.source.tokenizer(), {**opened.template_arguments, **arguments})
    loaded = _load(opened, options)
    session = Session(
        loaded.model, template, cache=options.cache, piece=options.piece, window=options.window,
        keep_cache=not options.no_cache,
    )  # fmt: skip
    return Talk(session, options, sampling, limits, str(opened.checkpoint or model), loaded)


def _load(opened: "Opened", options: Options) -> "Loaded":
    from fourge.chat.load import load

    with bar("loading") as (started, done):
        started(len(opened.source.tensors))
        return load(
            opened, path=options.path, device=options.device, dtype=options.dtype, progress=done
        )


def _play(talk: "Talk", scenario: "Scenario") -> None:
    """Ask as the scenario says.

    Raises:
        CheckError: a reply is not what was expected; the turns after it were asked too.
    """
    from fourge.chat.expect import Expect

    failed = []
    for number, turn in enumerate(scenario.turns, 1):
        if turn.reset:
            talk.begin(scenario.system)
        expect = Expect(**turn.expect.model_dump())
        found = talk.ask(turn.prompt, echo=True, expect=expect, max_tokens=turn.max_tokens,
                         seconds=turn.seconds)  # fmt: skip
        failed += [f"turn {number}: the reply {failure}" for failure in found]
    if failed:
        raise CheckError("\n  ".join(["The conversation was not as expected:", *failed]))


def _replay(talk: "Talk", log: Path) -> None:
    from fourge.chat.log import History, read_log

    events = list(read_log(log))
    for event in events:
        if isinstance(event, History):
            talk.restart(event.messages, event.turns)
        else:
            talk.ask_again(event)
    talk.told_replay(sum(not isinstance(event, History) for event in events))


def _converse(talk: "Talk") -> None:
    from fourge.cli import chat_prompt

    typed = sys.stdin.isatty()
    lines: Iterator[str] = chat_prompt.typed(talk.tell) if typed else chat_prompt.piped(talk.refuse)
    for question in lines:
        try:
            if not chat_prompt.heed(talk, question):
                break
        except KeyboardInterrupt:  # once more than was needed to stop the answer
            if not typed:
                raise
            talk.tell("Ctrl-D leaves")
    talk.require_no_refusal(typed=typed)
