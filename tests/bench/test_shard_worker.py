import socket
from typing import Any

import pytest

from fourge.bench import shard_worker
from fourge.bench.shard_worker import loopback_bytes, measure
from fourge.core.crew import ALONE
from tests.conftest import tiny_config


def test_the_loopback_device_counts_what_is_sent_over_it() -> None:
    before = loopback_bytes()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
        server.accept()[0] as taker,
    ):
        sender.sendall(bytes(1 << 16))
        assert taker.recv(1 << 16, socket.MSG_WAITALL) == bytes(1 << 16)
    assert loopback_bytes() - before >= 1 << 16


def test_one_process_is_measured_over_the_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(shape: str) -> Any:
        assert shape == "tiny"
        found = tiny_config("qwen3", tied=True)
        found.vocab_size = 1000
        return found

    monkeypatch.setattr(shard_worker, "shape_config", config)
    found = measure("tiny", "w4a16", 2, 8, ALONE)
    assert found["peak"] > 0
    assert found["seconds"] > 0
    assert 0 < found["loss"] < 20
