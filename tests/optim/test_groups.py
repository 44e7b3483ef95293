"""Rules by name become groups of a torch optimizer."""

import pytest
import torch
from torch import Tensor, nn

from fourge.core.errors import ConfigError
from fourge.optim.adamw import AdamW
from fourge.optim.groups import GroupRule, grouped, layer_of

NAMES = [
    "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj.weight",
    "model.layers.10.self_attn.q_proj.weight", "model.norm.weight",
]  # fmt: skip


def named() -> list[tuple[str, Tensor]]:
    return [(name, nn.Parameter(torch.full((2, 4), float(i)))) for i, name in enumerate(NAMES)]


def settings_of(rules: list[GroupRule]) -> dict[str, tuple[float | None, float | None]]:
    """What each parameter gets: its learning rate and weight decay, None where by default."""
    return {
        name: (group.get("lr"), group.get("weight_decay"))
        for group in grouped(named(), rules)
        for name, _ in group["params"]
    }


def test_without_rules_there_is_one_group_of_everything_in_order() -> None:
    given = named()
    (group,) = grouped(iter(given), [])
    assert list(group) == ["params"]
    assert [name for name, _ in group["params"]] == NAMES
    assert all(one is two for (_, one), (_, two) in zip(group["params"], given, strict=True))


def test_every_parameter_is_in_exactly_one_group() -> None:
    rules = [GroupRule(("*q_proj*", "*norm*"), lr=1.0), GroupRule(("*layers.0.*",), lr=2.0)]
    everything = [name for group in grouped(iter(named()), rules) for name, _ in group["params"]]
    assert sorted(everything) == sorted(NAMES)


def test_the_first_rule_that_matches_applies() -> None:
    rules = [GroupRule(("*layers.0.*",), lr=1.0), GroupRule(("*q_proj*",), weight_decay=0.5)]
    got = settings_of(rules)
    assert got["model.layers.0.self_attn.q_proj.weight"] == (1.0, None)
    assert got["model.layers.1.self_attn.q_proj.weight"] == (None, 0.5)
    assert got["model.norm.weight"] == (None, None)
    other = settings_of(rules[::-1])
    assert other["model.layers.0.self_attn.q_proj.weight"] == (None, 0.5)
    assert other["model.layers.0.mlp.up_proj.weight"] == (1.0, None)


def test_patterns_match_whole_names_with_star_and_question_mark() -> None:
    got = settings_of([GroupRule(("model.layers.?.self_attn.*",), lr=3.0)])
    chosen = {name for name, (lr, _) in got.items() if lr == 3.0}
    assert chosen == {NAMES[1], NAMES[3]}  # layer 10 has two digits


def test_letters_are_matched_as_they_are_written() -> None:
    with pytest.raises(ConfigError, match=r"'\*Q_PROJ\*'"):
        grouped(named(), [GroupRule(("*Q_PROJ*",), lr=1.0)])


@pytest.mark.parametrize("pattern", ["q_proj", "*k_proj*", "model.layers.?"])
def test_a_pattern_that_matches_nothing_is_refused_by_name(pattern: str) -> None:
    rules = [GroupRule(("*norm*", pattern), lr=1.0)]
    with pytest.raises(ConfigError) as caught:
        grouped(named(), rules)
    assert repr(pattern) in caught.value.problem
    (suggestion,) = caught.value.fix.split(": ")[1:]
    assert grouped(named(), [GroupRule((suggestion,), lr=1.0)])


def test_a_rule_that_others_leave_nothing_for_makes_no_empty_group() -> None:
    groups = grouped(named(), [GroupRule(("*",), lr=1.0), GroupRule(("*norm*",), lr=2.0)])
    assert len(groups) == 1
    assert groups[0]["lr"] == 1.0


def test_a_learning_rate_of_zero_is_a_setting_and_freezes() -> None:
    params = named()
    rules = [GroupRule(("*norm*",), lr=0.0, weight_decay=0.0)]
    optimizer = AdamW(grouped(params, rules), lr=0.1, master="fp32", moments="fp32")
    before = {name: param.detach().clone() for name, param in params}
    for _, param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    same = {name for name, param in params if torch.equal(param, before[name])}
    assert same == {"model.norm.weight"}


def test_names_reach_the_optimizer() -> None:
    optimizer = AdamW(grouped(named(), [GroupRule(("*norm*",), lr=1e-3)]), master="fp32")
    assert [name for name, _, _ in optimizer.named()] == [NAMES[-1], *NAMES[:-1]]


def test_the_lower_layers_are_a_group_of_any_model() -> None:
    got = settings_of([GroupRule(("*norm*",), lr=1.0), GroupRule((), lr=2.0, lower=0.5)])
    assert [got[name][0] for name in NAMES] == [None, 2.0, 2.0, 2.0, None, 1.0]
    everything = settings_of([GroupRule((), lr=2.0, lower=1.0)])
    assert [everything[name][0] for name in NAMES] == [None, 2.0, 2.0, 2.0, 2.0, None]
    first = settings_of([GroupRule((), lr=2.0, lower=1 / 11)])  # of layers 0 to 10
    assert [name for name in NAMES if first[name][0]] == NAMES[1:3]


def test_a_layer_is_the_first_number_of_a_name() -> None:
    assert layer_of("model.layers.10.experts.3.weight") == 10
    assert layer_of("model.norm.weight") is None


def test_lower_layers_that_are_not_trained_are_refused() -> None:
    last = [(name, value) for name, value in named() if "layers.10." in name or "norm" in name]
    with pytest.raises(ConfigError, match=r"lower 0.5 of the layers"):
        grouped(last, [GroupRule(("*norm*",), lr=1.0, lower=0.5)])
