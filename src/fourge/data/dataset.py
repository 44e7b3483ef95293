"""The files of a run as one sequence of batches: batch number ``step`` is a function of ``step``.

Every row is read and rendered before the first batch, so that a wrong line is found while the
user still watches, and all of them at once.

``digest`` stands for all that decides the batches: tokens, targets, weights, seed, order. Two
runs with the same digest and batch size see the same batches; where the files lie has no part in
it.
"""

import hashlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourge.core.errors import ConfigError, DataError
from fourge.data.batch import Batch, collate
from fourge.data.order import Mixture
from fourge.data.packed import PackedRows
from fourge.data.records import Example, listing, read_examples
from fourge.data.render import Rendered, Renderer, truncate_left

Progress = Callable[[int, int], None]  # rows rendered, rows in all


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Rendered files and the order they are drawn in."""

    files: tuple[PackedRows, ...]
    mixture: Mixture
    pad: int
    truncated: int  # rows that lost their beginning to max_tokens
    alone: Mapping[int, PackedRows] = field(default_factory=dict)  # files: their last questions

    def rendered(self, file: int, row: int) -> Rendered:
        return self.files[file][row]

    def asked(self, file: int, row: int) -> Rendered:
        """A row as the base model is asked it: in some files, its last question alone."""
        return self.alone.get(file, self.files[file])[row]

    def batch(self, step: int, batch_size: int) -> Batch:
        """The batch of a step, counted from 0."""
        if step < 0 or batch_size < 1:
            raise ConfigError(f"There is no batch {step} of {batch_size} rows.")
        first = step * batch_size
        rows = [self.mixture.draw(index) for index in range(first, first + batch_size)]
        return collate([self.rendered(*row) for row in rows], self.pad, rows)

    def drawn(self, draws: int) -> list[tuple[int, int]]:
        """The file and the row of all that so many draws take, once each, in order."""
        return sorted({self.mixture.draw(index) for index in range(draws)})

    @property
    def rows(self) -> tuple[int, ...]:
        """Of each file."""
        return self.mixture.rows

    @property
    def max_length(self) -> int:
        """Tokens of the longest row that is ever drawn."""
        drawn = zip(self.files, self.mixture.draws, strict=True)
        return max(max(file.lengths()) for file, draws in drawn if draws)

    @property
    def tokens_per_epoch(self) -> int:
        """Exact without weights; with weights, what an epoch reads on the average."""
        drawn = zip(self.files, self.mixture.draws, strict=True)
        return round(sum(len(file.token) * draws / len(file) for file, draws in drawn))

    @property
    def untaught(self) -> int:
        """Answers that are only context, because the chat template rewrites them."""
        return sum(sum(file.untaught) for file in self.files)

    @property
    def digest(self) -> str:
        """128 bits, in hexadecimal."""
        mixture = self.mixture
        order = f"{mixture.rows} {mixture.draws} {mixture.seed} {mixture.shuffle}"
        total = hashlib.blake2b(order.encode(), digest_size=16)
        for file in (*self.files, *self.alone.values()):
            for part in (file.start, file.token, file.is_target):
                total.update(part.tobytes() if isinstance(part, array) else part)
        return total.hexdigest()


def open_dataset(
    files: Sequence[tuple[Path, float | None]],
    tokenizer: Any,
    *,
    max_tokens: int,
    seed: int,
    shuffle: bool,
    alone: Collection[int] = (),
    template_arguments: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read and render files, each with its weight (or none of them with one).

    Of the files with the numbers ``alone``, the base model is asked the last questions alone.

    Raises:
        ConfigError: the weights, ``max_tokens`` or the template's arguments cannot be.
        DataError: the tokenizer has no chat template, or rows are wrong; all files are read
            before it is raised.
    """
    if max_tokens < 2:
        raise ConfigError(f"data.max_tokens is {max_tokens}; it must be 2 or more.")
    weights = _weights(files)
    renderer = Renderer(tokenizer, template_arguments)
    examples, unread = _read([path for path, _ in files])
    packed, truncated, unusable = _render(examples, renderer, max_tokens, progress)
    _raise_any(unread, unusable)
    last = [[example.alone() for example in examples[file]] for file in alone]
    asked, _, unusable = _render(last, renderer, max_tokens, None)
    _raise_any((), unusable)
    for file, rows in zip(alone, asked, strict=True):
        _require_same_answers(packed[file], rows)
    mixture = Mixture(tuple(map(len, packed)), weights, seed, shuffle)
    by_file = dict(zip(alone, asked, strict=True))
    return Dataset(tuple(packed), mixture, _pad(tokenizer), truncated, by_file)


def _weights(files: Sequence[tuple[Path, float | None]]) -> tuple[float, ...] | None:
    if not files:
        raise ConfigError("No data is named.", fix="list at least one file under data.mix")
    weights = [weight for _, weight in files if weight is not None]
    if weights and len(weights) < len(files):
        without = next(path for path, weight in files if weight is None)
        raise ConfigError(
            f"{without} has no weight, and other files have one.",
            why="a weight is a share, and shares are of a whole",
            fix="give every file under data.mix a weight, or none",
        )
    return tuple(weights) or None


def _read(paths: Sequence[Path]) -> tuple[list[list[Example]], list[DataError]]:
    examples: list[list[Example]] = []
    faults: list[DataError] = []
    for path in paths:
        try:
            examples.append(read_examples(path))
        except DataError as error:
            faults.append(error)
    return examples, faults


def _render(
    files: Sequence[Sequence[Example]],
    renderer: Renderer,
    max_tokens: int,
    progress: Progress | None,
) -> tuple[list[PackedRows], int, list[DataError]]:
    packed = [PackedRows() for _ in files]
    done, truncated, total = 0, 0, sum(map(len, files))
    faults: list[DataError] = []
    for examples, rows in zip(files, packed, strict=True):
        for example in examples:
            try:
                whole = renderer.render(example)
                rows.add(truncate_left(whole, max_tokens))
                truncated += len(whole.token) > max_tokens
            except DataError as error:
                faults.append(error)
            done += 1
            if progress:
                progress(done, total)
    return packed, truncated, faults


def _require_same_answers(whole: PackedRows, alone: PackedRows) -> None:
    """Raise unless rows end with the targets that their last questions have alone."""
    for row in range(len(whole)):
        said, last = _targets(whole[row]), _targets(alone[row])
        if said[-len(last) :] != last:
            raise DataError(
                f"{whole[row].source}: the last answer is written differently after other turns",
                why="with learn: alone, each of its tokens is held to what the base model says "
                "there if the last question is asked alone",
                fix="use learn: base for this file, or correct the chat template",
            )


def _targets(rendered: Rendered) -> list[int]:
    marked = zip(rendered.token[1:], rendered.is_target[1:], strict=True)
    return [token for token, is_target in marked if is_target]


def _raise_any(unread: Sequence[DataError], unusable: Sequence[DataError]) -> None:
    """All that is wrong with all files, as one error."""
    if not unread and not unusable:
        return
    problems = [error.problem for error in unread]
    if unusable:
        count = "1 row" if len(unusable) == 1 else f"{len(unusable)} rows"
        problems.append(f"{count} cannot be used:{listing([e.problem for e in unusable])}")
    faults = [*unread, *unusable]
    raise DataError(
        "\n".join(problems),
        why=next((error.why for error in faults if error.why), ""),
        fix="; ".join(dict.fromkeys(error.fix for error in faults if error.fix)),
    )


def _pad(tokenizer: Any) -> int:
    # Any token serves: padding is masked, and stands where no real token sees it.
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0
