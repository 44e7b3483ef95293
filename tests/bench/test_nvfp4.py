import pytest

from fourge.bench import nvfp4


def test_every_candidate_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvfp4, "SIDE", 64)
    parts = list(nvfp4.measure(1, load=False))
    assert len(parts) == 2
    assert "dequantise" in parts[0].seconds
    assert "torchao quantise + dequantise" in parts[1].seconds
    assert "compressed-tensors quantise + dequantise" in parts[1].seconds


def test_a_peer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvfp4, "SIDE", 64)
    monkeypatch.setattr(nvfp4, "find_spec", lambda name: None)
    part = list(nvfp4.measure(1, load=False))[1]
    assert "not installed: torchao, compressed-tensors" in part.title
