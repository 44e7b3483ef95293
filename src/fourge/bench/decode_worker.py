"""One side of ``fourge bench decode``: loads a model, then does a job for every line it is sent.

    python -m fourge.bench.decode_worker plain  MODEL     transformers' own generate, float32
    python -m fourge.bench.decode_worker packed MODEL     ours, as a user has it
    python -m fourge.bench.decode_worker llama  FILE      llama.cpp, a GGUF

Jobs: ``memory`` (resident bytes since before the model was loaded), ``single`` (one long reply),
``batch`` (many shorter ones at once), ``alone`` (some of these, one after the other), ``chat``
(a conversation, turn by turn). All are greedy.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from fourge.bench.sides import answer
from fourge.chat.batch import reply_to_all
from fourge.chat.conversation import Template, ids_of
from fourge.chat.load import load
from fourge.chat.session import Limits, Session
from fourge.checkpoint.source import open_any
from fourge.core.process import resident_bytes, trim_heap
from fourge.data.records import Message

TOKENS, PROMPTS, ALONE, BATCH_TOKENS, TURN_TOKENS = 64, 64, 3, 32, 32
QUESTION = "Write a very long story about a {} that travels around the whole world."
THINGS = ("dog", "cat", "ship", "letter", "clock", "robot", "river", "song")
ADJECTIVES = ("red", "old", "tiny", "brave", "quiet", "lost", "golden", "tired")

Report = dict[str, Any]
Jobs = dict[str, Callable[[], Report]]


def prompts() -> list[str]:
    """Questions of one length whose answers are long."""
    return [QUESTION.format(f"{a} {thing}") for a in ADJECTIVES for thing in THINGS][:PROMPTS]


def plain(path: str) -> Jobs:
    """transformers, float32 weights, ``generate``."""
    opened = open_any(path)
    model = load(opened, path="dense", dtype="float32").model
    template = Template(opened.source.tokenizer(), opened.template_arguments)
    prompt = ids_of(template.prompt([Message("user", prompts()[0])]))
    tokens_BT = torch.tensor([prompt])
    mask_BT = torch.ones_like(tokens_BT)

    def single() -> Report:
        start = time.perf_counter()
        out_BT = model.generate(
            tokens_BT, attention_mask=mask_BT, max_new_tokens=TOKENS, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        return _timed(start, out_BT.shape[1] - len(prompt))

    return {"single": single}


def packed(path: str) -> Jobs:
    """Ours: codes and scales alone in memory."""
    opened = open_any(path)
    model = load(opened, path="packed").model
    template = Template(opened.source.tokenizer(), opened.template_arguments)

    def single() -> Report:
        start = time.perf_counter()
        said = Session(model, template).ask(prompts()[0], limits=Limits(max_tokens=TOKENS))
        return {**_timed(start, len(said.ids)), "prompt_s": said.prefill_s}

    asked = [[Message("user", prompt)] for prompt in prompts()]

    def batch() -> Report:
        start = time.perf_counter()
        said = reply_to_all(model, template, asked, max_tokens=BATCH_TOKENS, batch=PROMPTS)
        whole = _timed(start, sum(len(reply.ids) for reply in said))
        start = time.perf_counter()
        reply_to_all(model, template, asked, max_tokens=1, batch=PROMPTS)
        return {**whole, "prompt_s": time.perf_counter() - start}

    def alone() -> Report:
        limits, start = Limits(max_tokens=BATCH_TOKENS), time.perf_counter()
        said = [Session(model, template).ask(each, limits=limits) for each in prompts()[:ALONE]]
        whole = _timed(start, sum(len(turn.ids) for turn in said))
        return {**whole, "prompt_s": sum(turn.prefill_s for turn in said)}

    def chat() -> Report:
        session, seconds, tokens = Session(model, template), [], []
        session.begin([Message("system", ".")])  # none is as long as some templates' own
        for question in prompts()[:3]:
            held, start = len(session.feed.ids), time.perf_counter()
            session.ask(question, limits=Limits(max_tokens=TURN_TOKENS))
            seconds.append(time.perf_counter() - start)
            tokens.append(len(session.feed.ids) - held)
        return {"seconds": seconds, "tokens": tokens}

    return {"single": single, "batch": batch, "alone": alone, "chat": chat}


def llama(path: str) -> Jobs:
    """llama.cpp, as xllamacpp brings it: compiled, for every processor."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = path, 2048, 1
    for each in (params.cpuparams, params.cpuparams_batch):
        each.n_threads = torch.get_num_threads()
    server = xllamacpp.Server(params)
    asked = {
        "messages": [{"role": "user", "content": prompts()[0]}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "cache_prompt": False,
    }

    def single() -> Report:
        start = time.perf_counter()
        said = server.handle_chat_completions(asked)
        return _timed(start, said["usage"]["completion_tokens"])

    return {"single": single}


SIDES: dict[str, Callable[[str], Jobs]] = {"plain": plain, "packed": packed, "llama": llama}


def _timed(start: float, tokens: int) -> Report:
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


def main() -> None:
    side, path = sys.argv[1:]
    baseline = resident_bytes()
    jobs = SIDES[side](path)
    trim_heap()
    jobs["memory"] = lambda: {"bytes": resident_bytes() - baseline}
    for line in sys.stdin:
        answer(jobs[line.strip()]())


if __name__ == "__main__":
    main()
