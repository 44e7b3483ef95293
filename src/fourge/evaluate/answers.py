"""A model's answers to many questions at once, greedily decoded.

Questions are sorted by length and answered in batches, padded on the left, so that the last token
of every row is the one to continue. Greedy, because an answer must be a function of the weights to
be worth caching; batching moves logits in their last bits only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fourge.core.errors import ConfigError
from fourge.data.conversation import Messages

BATCH = 32
Progress = Callable[[int, int], None]  # answered, of how many


@dataclass(frozen=True, slots=True)
class Said:
    """What a model answered."""

    text: str
    tokens: int
    stopped: bool  # by itself, before the limit


def answer_all(
    model: Any,
    tokenizer: Any,
    conversations: Sequence[Messages],
    *,
    max_tokens: int,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> list[Said]:
    """The answers, in the order of the conversations.

    Raises:
        ConfigError: the model has no chat template.
    """
    prompts = [_tokens(tokenizer, messages) for messages in conversations]
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    said: dict[int, Said] = {}
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        answers = _answer(model, tokenizer, [prompts[at] for at in chosen], max_tokens)
        said.update(zip(chosen, answers, strict=True))
        if progress:
            progress(len(said), len(order))
    return [said[at] for at in range(len(prompts))]


def _tokens(tokenizer: Any, messages: Messages) -> list[int]:
    if not tokenizer.chat_template:
        raise ConfigError("The model has no chat template.", fix="use an instruction-tuned model")
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _answer(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[Said]:
    longest = max(map(len, prompts))
    stops = _stops(model, tokenizer)
    token_BT = torch.full((len(prompts), longest), stops[0])
    mask_BT = torch.zeros_like(token_BT)
    for row, prompt in enumerate(prompts):
        token_BT[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask_BT[row, longest - len(prompt) :] = 1
    with torch.inference_mode():
        out_BT = model.generate(
            input_ids=token_BT.to(model.device), attention_mask=mask_BT.to(model.device),
            max_new_tokens=max_tokens, do_sample=False, eos_token_id=stops, pad_token_id=stops[0],
            temperature=None, top_p=None, top_k=None,
        )  # fmt: skip
    return [_said(tokenizer, row, stops) for row in out_BT[:, longest:].tolist()]


def _said(tokenizer: Any, token: list[int], stops: Sequence[int]) -> Said:
    end = next((at for at, each in enumerate(token) if each in stops), None)
    kept = token if end is None else token[:end]
    text = tokenizer.decode(kept, skip_special_tokens=True).strip()
    return Said(text, len(kept), end is not None)


def _stops(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends an answer, by the tokenizer or by the model's own settings."""
    own = model.generation_config.eos_token_id
    found = [tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])]
    stops = list(dict.fromkeys(int(token) for token in found if token is not None))
    if not stops:
        raise ConfigError(
            "The model has no end-of-turn token.", fix="use an instruction-tuned model"
        )
    return stops
