"""Ask a model, and its base, every probe once, and judge.

One model is in memory at a time. What was asked before of the same weights is not asked again
(``cache``).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fourge.chat.load import choose_path, load
from fourge.checkpoint.source import open_any
from fourge.core.process import trim_heap
from fourge.evaluate.answers import Said, answers_as_they_come
from fourge.evaluate.cache import Kept, cache_folder, model_key
from fourge.evaluate.perplexity import Piece, held_out, losses
from fourge.evaluate.plain import load_plain, load_plain_tokenizer, require_plain
from fourge.evaluate.probes import SETS, Probe, load_probes, version_of
from fourge.evaluate.score import Names
from fourge.evaluate.verdict import SHARES, Results, Verdict, judge
from fourge.model.build import load_model
from fourge.model.swap import choose_device

PIECES = 32
Progress = Callable[[str, int, int], None]  # what, done, of how many
Server = Literal["fourge", "transformers"]


@dataclass(frozen=True, slots=True)
class Questions:
    """All that is asked."""

    probes: tuple[Probe, ...]
    pieces: tuple[Piece, ...]
    versions: dict[str, str]


def choose(languages: Sequence[str], *, name: str | None, limit: int | None = None) -> Questions:
    """The probes in these languages; those about a name only if there is one."""
    sets = [each for each in SETS if name is not None or each not in SHARES]
    probes = [probe for each in sets for probe in load_probes(each, languages, limit)]
    if name is not None:
        probes = [probe.naming(name) for probe in probes]
    pieces = held_out(PIECES if limit is None else min(limit, PIECES))
    return Questions(tuple(probes), tuple(pieces), {each: version_of(each) for each in sets})


def check(
    model: str,
    base: str | None,
    questions: Questions,
    names: Names | None,
    *,
    margin: float = 0.05,
    served_by: Server = "fourge",
    progress: Progress,
) -> Verdict:
    """Ask both models, and judge; ``served_by`` is about the first.

    Raises:
        FormatError: one cannot be opened.
        DataError: one has no chat template.
    """
    _require_readable(model, served_by)
    before = None
    if base is not None:
        before = ask(base, questions, progress, path=path_of_base(model))
    after = ask(model, questions, progress, served_by)
    return judge(questions.probes, after, before, names, margin=margin)


def path_of_base(model: str) -> str:
    """How to load the base of a model: in NVFP4 if the model is.

    So what is held against the model is what was done to it, and not what rounding does to both.
    """
    return "packed" if choose_path(open_any(model), "auto") == "packed" else "auto"


def ask(
    model: str,
    questions: Questions,
    progress: Progress,
    served_by: Server = "fourge",
    path: str = "auto",
) -> Results:
    """Everything that is asked of one model."""
    loaded, tokenizer = load_served(model, served_by, path)
    kept = Kept(cache_folder(), model_key(loaded, tokenizer, served_by))
    results = ask_loaded(loaded, tokenizer, questions, kept, _counter(model, progress))
    del loaded
    trim_heap()
    return results


def load_served(model: str, served_by: Server, path: str = "auto") -> tuple[Any, Any]:
    """A model and its tokenizer, in memory; ``path`` as in ``chat.load``."""
    if served_by == "transformers":
        return load_plain(Path(model)), load_plain_tokenizer(Path(model))
    opened = open_any(model)
    tokenizer = opened.source.tokenizer()
    if opened.checkpoint is not None or path != "auto":  # as its run computes
        return load(opened, path=path).model, tokenizer
    return load_model(opened.source, device=choose_device("auto")), tokenizer


def _require_readable(model: str, served_by: Server) -> None:
    """Raise before the base is asked, which takes minutes."""
    if served_by == "transformers":
        require_plain(Path(model))
    else:
        open_any(model)


def ask_loaded(
    model: Any,
    tokenizer: Any,
    questions: Questions,
    kept: Kept,
    progress: Callable[[int, int], None],
) -> Results:
    """The same of a model in memory, whose answers so far are ``kept``."""
    said = _answers(model, tokenizer, questions.probes, kept, progress)
    found = _losses(model, tokenizer, questions.pieces, kept)
    return Results(tuple(said), tuple(found))


def narrowed(results: Results, asked: Questions, to: Questions) -> Results:
    """The part of some results that belongs to fewer of the same questions."""
    said = {probe.digest: each for probe, each in zip(asked.probes, results.said, strict=True)}
    lost = {piece.digest: each for piece, each in zip(asked.pieces, results.losses, strict=True)}
    return Results(
        tuple(said[probe.digest] for probe in to.probes),
        tuple(lost[piece.digest] for piece in to.pieces),
    )


def _counter(model: str, progress: Progress) -> Callable[[int, int], None]:
    name = f"asking {Path(model).name}"
    return lambda done, total: progress(name, done, total)


def _answers(
    model: Any,
    tokenizer: Any,
    probes: Sequence[Probe],
    kept: Kept,
    progress: Callable[[int, int], None],
) -> list[Said]:
    """From the cache where they are there; the others are asked, and kept as they come."""
    missing = [probe for probe in probes if probe.digest not in kept]
    done = len(probes) - len(missing)
    progress(done, len(probes))
    conversations = [probe.messages() for probe in missing]
    limits = [probe.max_tokens for probe in missing]
    for number, said in answers_as_they_come(model, tokenizer, conversations, limits):
        kept.put({missing[number].digest: asdict(said)})
        done += 1
        progress(done, len(probes))
    return [Said(**kept[probe.digest]) for probe in probes]


def _losses(model: Any, tokenizer: Any, pieces: Sequence[Piece], kept: Kept) -> list[float]:
    missing = [piece for piece in pieces if piece.digest not in kept]
    found = losses(model, tokenizer, missing)
    kept.put({piece.digest: loss for piece, loss in zip(missing, found, strict=True)})
    return [float(kept[piece.digest]) for piece in pieces]
