"""What no setting can say alone: the pairs of settings of a run that exclude each other.

Each rule reads its settings by name. It is skipped when one of them is itself a mistake, so a
file with a wrong ``train.batch`` still hears about its ``optim.clip_method``, and never hears a
rule judged on a value that was not meant.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from fourge.config.strict import Mistake, Place, Strict, as_number, part_of, shown


class UnsoundError(Exception):
    """A setting that a rule wants to read is itself a mistake."""


class Settings:
    """The settings of a tree that are sound: as given, or their defaults."""

    def __init__(self, model: type[Strict], tree: Mapping[str, Any], faults: Collection[Place]):
        self.model = model
        self.tree = tree
        self.faults = faults

    def __getitem__(self, name: str) -> Any:
        section, field = place = tuple(name.split("."))
        if any(fault[:2] == place[: len(fault)] for fault in self.faults):
            raise UnsoundError(name)
        part = part_of(self.model.model_fields[section].annotation)
        assert part, f"{section} is not a part"
        default = part.model_fields[field].get_default(call_default_factory=True)
        return as_number(self.tree.get(section, {}).get(field, default))

    def mix(self) -> list[Mapping[str, Any]]:
        """The entries of ``data.mix`` that can be looked into, sound or not."""
        data = self.tree.get("data")
        entries = data.get("mix") if isinstance(data, Mapping) else None
        entries = entries if isinstance(entries, list | tuple) else []
        return [entry for entry in entries if isinstance(entry, Mapping)]


def broken_rules(
    model: type[Strict], tree: Mapping[str, Any], faults: Collection[Place] = ()
) -> list[Mistake]:
    """The rules that a tree of settings breaks, given the places that are mistakes already."""
    settings = Settings(model, tree, faults)
    found: list[Mistake] = []
    for rule in _RULES:
        try:
            found.extend(Mistake(tuple(name.split(".")), says) for name, says in rule(settings))
        except UnsoundError:
            continue
    return found


def _length(settings: Settings) -> Iterator[tuple[str, str]]:
    steps, epochs = settings["train.steps"], settings["train.epochs"]
    if steps is None and epochs is None:
        yield "train.steps", "is required (or train.epochs)"
    if steps is not None and epochs is not None:
        yield "train.epochs", f"is {epochs} and train.steps is {steps}; set one of them to null"


def _weights(settings: Settings) -> Iterator[tuple[str, str]]:
    weights = [entry.get("weight") for entry in settings.mix()]
    absent = weights.count(None)
    if 0 < absent < len(weights):
        yield (
            "data.mix",
            f"{absent} of {len(weights)} entries have no weight; give every entry one, or none",
        )
    if weights and all(weight in (0, 0.0) and weight is not False for weight in weights):
        yield "data.mix", "every weight is 0, so nothing would be drawn; raise one"


def _accumulation(settings: Settings) -> Iterator[tuple[str, str]]:
    accumulate = settings["train.accumulate"]
    if accumulate > 1 and settings["train.release"]:
        yield (
            "train.accumulate",
            f"is {accumulate} with train.release true; a released gradient is gone before the "
            "next could be added to it; set train.release: false",
        )


def _clipping(settings: Settings) -> Iterator[tuple[str, str]]:
    method, release = settings["optim.clip_method"], settings["train.release"]
    if method == "global" and release:
        yield (
            "optim.clip_method",
            "is 'global' with train.release true; the norm of all gradients is known only when "
            "the first are gone; choose two-pass or tensor, or set train.release: false",
        )
    if method in ("tensor", "two-pass") and not release:
        yield (
            "optim.clip_method",
            f"is '{method}' with train.release false; every gradient is there, so the global "
            "norm is free; choose global or auto, or set train.release: true",
        )


def _packed_moments(settings: Settings) -> Iterator[tuple[str, str]]:
    beta1, beta2 = settings["optim.beta1"], settings["optim.beta2"]
    moments = settings["optim.moments"]
    if moments != "fp32" and beta1**2 >= beta2:
        yield (
            "optim.beta2",
            f"is {beta2} with optim.beta1 {beta1} and optim.moments {moments}; m / sqrt(v) has "
            f"no bound unless beta1**2 is below beta2; raise beta2 above {beta1**2:.4g}, lower "
            "beta1, or set optim.moments: fp32",
        )


def _packed_master(settings: Settings) -> Iterator[tuple[str, str]]:
    scheme = settings["model.scheme"]
    if settings["optim.master"] == "nvfp4" and scheme == "none":
        yield (
            "optim.master",
            f"is 'nvfp4' with model.scheme {shown(scheme)}; no layer has the 4-bit pack that "
            "would be its master; choose another master, or set model.scheme: w4a16",
        )


def _held_to_base(settings: Settings) -> Iterator[tuple[str, str]]:
    weight = settings["train.kl_to_base"]
    held = any(entry.get("learn", "answer") != "answer" for entry in settings.mix())
    if held and weight == 0:
        yield (
            "train.kl_to_base",
            "is 0 while data.mix has entries that are held to the base model, which would then "
            "teach nothing; set it to 1.0, or drop those entries",
        )
    if weight > 0 and not held:
        yield (
            "train.kl_to_base",
            f"is {weight} and no entry of data.mix is held to the base model; add learn: base to "
            "the entries whose rows should stay as the base model would say them",
        )
    if weight == 0 and settings["train.kl_budget"] is not None:
        yield "train.kl_budget", "is set while train.kl_to_base is 0; it has no weight to follow it"


_RULES: tuple[Callable[[Settings], Iterator[tuple[str, str]]], ...] = (
    _length, _weights, _accumulation, _clipping, _packed_moments, _packed_master,
    _held_to_base,
)  # fmt: skip
