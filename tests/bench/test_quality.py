import pytest

from fourge.bench.quality import Curve, gaps


def test_a_tenth_is_a_mean_and_a_gap_is_relative() -> None:
    exact = Curve("fp32", "fp32", 0, tuple(float(i) for i in range(1, 21)))
    worse = Curve("bf16", "int8", 0, tuple(1.1 * i for i in range(1, 21)))
    assert exact.tenths()[:2] == [1.5, 3.5]
    assert len(exact.tenths()) == 10
    (row,) = gaps([exact, worse])["bf16 + int8"]
    assert row == pytest.approx([0.1] * 10)
