import pytest

from fourge.bench import optim


def test_every_optimizer_is_measured_with_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "TENSORS", 2)
    monkeypatch.setattr(optim, "ROWS", 8)
    monkeypatch.setattr(optim, "COLUMNS", 768)
    monkeypatch.setattr(optim, "_torchao", optim._fused)  # whose compiling takes a minute
    measured = optim.measure(1)
    assert measured.state_bytes["fourge bf16 + int8"] == pytest.approx(2.031, abs=1e-3)
    assert measured.state_bytes["fourge bf16+8 + int8"] == pytest.approx(3.031, abs=1e-3)
    assert measured.state_bytes[optim.FUSED] == pytest.approx(4.0, abs=1e-3)
    assert measured.part.speed(optim.FUSED) == 1
    assert all(len(line) <= 80 for line in measured.table().splitlines())
    assert measured.as_dict()["weights"] == 2 * 8 * 768
