from fourge.bench.interleave import Part, interleaved


def test_candidates_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    seconds = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
    assert order == ["a", "b"] * 4
    assert set(seconds) == {"a", "b"}


def test_a_part_gives_ratios_to_its_yardstick() -> None:
    part = Part("title", "copy", {"copy": 0.002, "ours": 0.004})
    assert part.speed("ours") == 0.5
    assert "0.500 x" in part.table()
    assert part.as_dict()["speed"] == {"copy": 1.0, "ours": 0.5}
