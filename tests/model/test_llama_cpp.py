"""llama.cpp reads our NVFP4 GGUF and says what we say: the same codes, and no code of ours.

It rounds activations to 8 bits for its products, so answers may part after some tokens.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from fourge import api
from fourge.chat.batch import reply_to_all
from fourge.chat.conversation import Template
from fourge.chat.load import load
from fourge.checkpoint.source import open_any
from fourge.data.records import Message
from fourge.model.embedded import EMBEDDED

xllamacpp = pytest.importorskip("xllamacpp")

QUESTIONS = ["What is the capital of France?", "What is 2 plus 2?", "Who wrote Hamlet?"]
TOKENS = 12
Say = Callable[[str], str]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "nvfp4.gguf"
    api.convert(EMBEDDED, path, "gguf")
    return path


@pytest.fixture(scope="module")
def theirs(file: Path) -> Say:
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(file), 512, 1
    server = xllamacpp.Server(params)

    def say(question: str) -> str:
        asked = {"messages": [{"role": "user", "content": question}], "max_tokens": TOKENS,
                 "temperature": 0}  # fmt: skip
        return str(server.handle_chat_completions(asked)["choices"][0]["message"]["content"])

    return say


def test_llama_cpp_says_what_we_say(file: Path, theirs: Say) -> None:
    opened = open_any(str(file))
    template = Template(opened.source.tokenizer(), opened.template_arguments)
    model = load(opened, path="packed").model
    asked = [[Message("user", question)] for question in QUESTIONS]
    ours = [reply.text for reply in reply_to_all(model, template, asked, max_tokens=TOKENS)]
    assert [theirs(question) for question in QUESTIONS] == ours
