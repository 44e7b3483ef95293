"""Answers and probes for the tests of this package."""

from fourge.evaluate.answers import Said
from fourge.evaluate.probes import Probe


def probe(set_name: str = "leak", prompt: str = "Why is the sky blue?", *, language: str = "en",
          facet: str = "x", accepted: tuple[str, ...] = ()) -> Probe:  # fmt: skip
    return Probe(set_name, language, facet, (("user", prompt),), accepted)


def said(text: str, *, stopped: bool = True) -> Said:
    return Said(text, len(text.split()), stopped)
