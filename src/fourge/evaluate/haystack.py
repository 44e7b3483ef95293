"""A long real text with one sentence in it that does not belong: what ``needle`` asks for.

    <user> ...text... The secret code of the archive is amber-4821. ...text... What is the code?

Everything is one message of the user, written by the model's own chat template. The text is cut at
the end of a line so that the whole prompt has as many tokens as asked for, or a few less. The code
is another one in every prompt: none can be known from anywhere else.
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from fourge.chat.conversation import Template, ids_of
from fourge.core.errors import DataError

WORDS = ("amber", "basalt", "cedar", "delta", "ember", "falcon", "garnet", "harbor", "indigo",
         "juniper", "kestrel", "lagoon", "meadow", "nickel", "orchid", "pebble")  # fmt: skip
SENTENCE = "The secret code of the archive is {}."
QUESTION = "What is the secret code of the archive? Answer with the code alone."


def secret(seed: int, number: int) -> str:
    """The code of one prompt: a word and four digits."""
    luck = random.Random(f"{seed}/{number}")
    return f"{luck.choice(WORDS)}-{luck.randrange(1000, 10000)}"


@dataclass(frozen=True, slots=True)
class Hidden:
    """A prompt with a secret in it."""

    length: int  # tokens as asked for, the answer's among them
    depth: float
    code: str
    prompt: tuple[int, ...]


class Haystack:
    """A text, and how a model's template writes it with a question after it."""

    def __init__(self, template: Template, text: str) -> None:
        self.template, self.lines = template, text.splitlines()

    def hide(
        self, lengths: Sequence[int], depths: Sequence[float], *, answer: int, seed: int
    ) -> list[Hidden]:
        """A prompt for every depth of every length, the longest first, the deepest first.

        Raises:
            DataError: as of ``prompt``.
        """
        places = [
            (n, d) for n in sorted(lengths, reverse=True) for d in sorted(depths, reverse=True)
        ]
        codes = [secret(seed, number) for number in range(len(places))]
        return [
            Hidden(length, depth, code, tuple(self.prompt(length - answer, depth, code)))
            for (length, depth), code in zip(places, codes, strict=True)
        ]

    def prompt(self, tokens: int, depth: float, code: str) -> list[int]:
        """The longest prompt of at most so many tokens, with the code at a depth from 0 to 1.

        Raises:
            DataError: the text is too short for it, or the question alone is too long.
        """

        def length(lines: int) -> int:
            return len(self._ids(lines, depth, code))

        lines = bisect_right(range(len(self.lines) + 1), tokens, key=length) - 1
        if lines < 1:
            raise DataError(
                f"{tokens} tokens have no room for a text and a question.", fix="ask for more"
            )
        if lines == len(self.lines):
            raise DataError(
                f"The text is too short for {tokens} tokens.",
                why=f"all of it, and the question, have {length(lines)}",
                fix="give a longer one: --text FILE",
            )
        return self._ids(lines, depth, code)

    def _ids(self, lines: int, depth: float, code: str) -> list[int]:
        at = round(depth * lines)
        hay = [*self.lines[:at], SENTENCE.format(code), *self.lines[at:lines]]
        text = "\n".join([*hay, "", QUESTION])
        return ids_of(self.template.prompt([self.template.question(text)]))
