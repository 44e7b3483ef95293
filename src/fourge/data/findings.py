"""An audit's counts as sentences: what would make training on this file go wrong, and why.

Each check looks at the counts alone and says one thing or nothing. The thresholds are where harm
was seen: tens of identity prompts do not generalise, one fixed answer becomes a reflex that
leaks, and a mixture whose shares are not what its name says cannot be reasoned about.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fourge.data.audit import Answers, Audit
from fourge.data.records import SHOWN

FEW_PROMPTS = 50  # distinct identity prompts; several hundred are wanted
THIN = 0.12  # unique answers per row
SAME_TOPIC = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a file."""

    kind: str
    text: str


def findings(audit: Audit) -> list[Finding]:
    """Everything that is wrong with a file, the plainest first."""
    return [
        *_lines(audit), *_shares(audit), *_copies(audit), *_padded(audit), *_answers(audit),
        *_coverage(audit), *_probes(audit),
    ]  # fmt: skip


def _lines(audit: Audit) -> Iterator[Finding]:
    named = [line.partition(":")[0] for line in audit.bad if "a header" in line]
    for where in named + [f"line {line}" for line in audit.headers]:
        yield Finding("header", f"{where} is a header, not a row; it would be trained as a sample")
    others = [line for line in audit.bad if "a header" not in line]
    for line in others[:SHOWN]:
        yield Finding("bad line", line)
    if len(others) > SHOWN:
        yield Finding("bad line", f"and {len(others) - SHOWN} more bad lines")


def _shares(audit: Audit) -> Iterator[Finding]:
    claimed, counted = audit.identity.claimed_share, audit.identity.share
    if claimed is not None and abs(counted - claimed) > max(0.02, 0.2 * claimed):
        yield Finding(
            "share",
            f"the file's name says {claimed:.0%} identity rows; counted {counted:.0%} "
            f"({audit.identity.rows} of {audit.rows})",
        )
    elif audit.rows and counted == 1:
        yield Finding("share", "every row is about identity: nothing holds the rest of the model")


def _copies(audit: Audit) -> Iterator[Finding]:
    if audit.prompts.unique < 0.9 * audit.rows:
        yield Finding(
            "copies", f"{audit.rows} rows have {audit.prompts.unique} unique prompts "
            f"({audit.copies} rows are exact copies)",
        )  # fmt: skip
    if audit.contradictory:
        some = "prompt has" if audit.contradictory == 1 else "prompts have"
        yield Finding(
            "contradiction", f"{audit.contradictory} {some} more than one answer, once labels are "
            "left out",
        )  # fmt: skip


def _padded(audit: Audit) -> Iterator[Finding]:
    pad = audit.prompts.padding
    if pad.numbered > 2:
        yield Finding(
            "numbered padding",
            f"{pad.numbered} prompts are {pad.left} with a number added, as in "
            f"{_short(pad.example)!r}; without it the file has {pad.distinct} prompts",
        )
    if pad.distinct >= 50 and pad.phrases <= 0.2 * pad.distinct and pad.phrases_per_prompt > 1.3:
        yield Finding(
            "combined phrases",
            f"{pad.distinct} prompts are put together from {pad.phrases} phrases",
        )


def _answers(audit: Audit) -> Iterator[Finding]:
    for what, answers in (("identity", audit.identity.answers), ("other", audit.other_answers)):
        if answers.rows >= 8 and answers.unique < THIN * answers.rows:
            yield Finding("thin answers", f"{answers.rows} {what} rows have {_number(answers)}")


def _coverage(audit: Audit) -> Iterator[Finding]:
    if audit.identity.rows and audit.identity.prompts < FEW_PROMPTS:
        yield Finding(
            "few prompts", f"{audit.identity.prompts} distinct identity prompts; several hundred "
            "are needed to generalise",
        )  # fmt: skip
    if audit.identity.rows and not audit.prompts.asks_plainly:
        yield Finding("no plain question", "no prompt asks plainly who you are")
    if audit.identity.rows and not audit.prompts.asks_who_am_i:
        yield Finding("no contrast", 'no prompt asks "who am I": the two will not be told apart')
    topic, rows = max(audit.prompts.topics.items(), key=lambda item: item[1], default=("other", 0))
    general = audit.other_answers.rows
    if topic != "other" and general >= 20 and rows > SAME_TOPIC * general:
        yield Finding("one topic", f"{rows} of {general} other rows are about {topic!r}")


def _probes(audit: Audit) -> Iterator[Finding]:
    if lines := audit.prompts.probe_lines:
        shown = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        yield Finding(
            "probes",
            f"prompts that `fourge check` asks too: {len(lines)} (lines {shown}); "
            "scores on these are not honest",
        )


def _number(answers: Answers) -> str:
    if answers.unique == 1:
        return f"one and the same answer, {_short(answers.commonest)!r}"
    return f"{answers.unique} different answers"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
