"""The questions a model is judged by: shipped, versioned, and never among what is taught.

| set          | asks                                        | passes if                    |
|--------------|---------------------------------------------|------------------------------|
| identity     | who the assistant is, by facet and language | the new name, and no old one |
| separation   | about somebody else ("who am I")            | the new name is absent       |
| leak         | about anything else                         | the new name is absent       |
| abilities    | what has one right answer                   | the answer is there          |
| degeneration | for something short, with room to go on     | it stops                     |

Every answer, of any set, is also looked at for emptiness, repetition and the wrong language
(``degenerate``). Perplexity on real text is measured beside these (``perplexity``).

A probe's digest covers what is asked and how long an answer may be; with the digest of a model's
weights it is the key of a cached answer.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fourge.data.conversation import Messages
from fourge.data.order import permutation
from fourge.data.shipped import parts_of, prompts_of, shipped

SETS = ("identity", "separation", "leak", "abilities", "degeneration")
MAX_TOKENS = {"identity": 32, "separation": 32, "leak": 32, "abilities": 24, "degeneration": 96}


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and what its answer must hold (abilities only)."""

    set: str  # one of SETS
    language: str
    facet: str
    turns: tuple[tuple[str, str], ...]  # role and content; the last is the user's
    accepted: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        return self.turns[-1][1]

    @property
    def max_tokens(self) -> int:
        return MAX_TOKENS[self.set]

    @property
    def digest(self) -> str:
        text = json.dumps([self.turns, self.max_tokens], ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def naming(self, name: str) -> "Probe":
        """The same, with the name where it has just been said (``{name}``)."""
        turns = tuple((role, text.replace("{name}", name)) for role, text in self.turns)
        return replace(self, turns=turns)

    def messages(self) -> Messages:
        return [{"role": role, "content": content} for role, content in self.turns]


def load_probes(name: str, languages: Sequence[str], limit: int | None = None) -> list[Probe]:
    """The probes of a set in these languages; with a limit, a sample that is always the same."""
    texts = shipped("fourge.evaluate", f"probes/{name}.yaml")
    probes = [
        _probe(name, language, facet, line)
        for language in languages
        for facet, group in texts.get(language, {}).items()
        for line in prompts_of(group)
    ]
    if limit is not None and limit < len(probes):
        probes = [probes[at] for at in sorted(permutation(name, len(probes))[:limit])]
    return probes


def version_of(name: str) -> str:
    """The set's number, and a digest of all it asks and accepts: ``1-5f0c2a91``."""
    texts = shipped("fourge.evaluate", f"probes/{name}.yaml")
    text = json.dumps(texts, ensure_ascii=False, sort_keys=True)
    return f"{texts['version']}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def probe_prompts(languages: Sequence[str]) -> list[str]:
    """Every question of every set, for finding them among training data."""
    return [probe.prompt for name in SETS for probe in load_probes(name, languages)]


def _probe(name: str, language: str, facet: str, line: str) -> Probe:
    parts = parts_of(line)
    if name == "abilities":
        question, accepted = parts
        answers = tuple(parts_of(accepted, "|"))
        return Probe(name, language, facet, (("user", question),), answers)
    turns: list[tuple[str, str]] = []
    if facet == "system":
        turns.append(("system", parts.pop(0)))
    turns += [(("user", "assistant")[at % 2], part) for at, part in enumerate(parts)]
    return Probe(name, language, facet, tuple(turns))
