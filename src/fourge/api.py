"""What the commands do, as functions. A command parses, calls one of these, and prints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fourge.chat.conversation import Template
from fourge.chat.load import load
from fourge.chat.session import Limits, Session
from fourge.checkpoint.source import open_any
from fourge.core.errors import CheckError, ConfigError
from fourge.formats.stored import Tensors
from fourge.model.build import load_model
from fourge.model.calibration import TEXTS, calibrate_
from fourge.model.export import (
    DENSE_TARGETS,
    FOLDER_LAYOUTS,
    Done,
    Outgoing,
    export,
    outgoing_from_model,
    outgoing_from_source,
    require_name,
    require_target,
)
from fourge.model.inspect import Inspection, inspect
from fourge.model.source import Source, open_source
from fourge.model.swap import KEEP_BF16, nvfp4_layers, quantize_
from fourge.model.tensors import to_quantize
from fourge.nvfp4.gemm import Scheme
from fourge.nvfp4.recipe import FOURGE, Recipe

__all__ = [
    "Checked", "Converted", "Inspection", "ask", "check_export", "convert", "inspect",
    "load_model", "open_source", "quantize_", "save",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Converted:
    """What ``convert`` wrote."""

    out: Path
    target: str
    scheme: Scheme
    tensors: int
    nbytes: int
    kept: tuple[str, ...]


def convert(
    model: str | Path,
    out: Path,
    target: str,
    *,
    scheme: Scheme | None = None,
    keep: Sequence[str] = KEEP_BF16,
    recipe: Recipe = FOURGE,
    calibration: Path | None = None,
    overwrite: bool = False,
    started: Callable[[int], None] | None = None,
    done: Done | None = None,
) -> Converted:
    """Write a model in another format; NVFP4 weights keep their codes, others are quantised.

    ``scheme`` is by default that of the source, or w4a16 for a dense one.
    ``started`` is told how many tensors there are, ``done`` the name of each that is written.

    Raises:
        FormatError, ConfigError, OutputError: as the user's mistakes are.
    """
    require_target(target)
    require_name(out, target)
    source = open_source(model)
    place, origin = out.resolve(), source.path.resolve()
    if place in (origin, *origin.parents) or origin in place.parents:
        raise ConfigError(
            f"{out} is, holds or lies in the model that is read.",
            why="an input is never modified",
            fix="choose another path",
        )
    _refuse_idle_settings(source, target, scheme, recipe, calibration)
    if scheme == "w4a16":
        source = replace(source, tensors=_without_input_scales(source.tensors))
    if scheme == "w4a4" and not _calibrated(source):
        outgoing = _calibrated_outgoing(source, target, keep, recipe, calibration)
    else:
        outgoing = outgoing_from_source(source, target, keep=keep, recipe=recipe)
    if started:
        started(len(outgoing.tensors))
    export(outgoing, out, target, overwrite=overwrite, done=done)
    nbytes = sum(f.stat().st_size for f in ([out] if out.is_file() else out.iterdir()))
    return Converted(out, target, outgoing.scheme, len(outgoing.tensors), nbytes, outgoing.kept)


def _refuse_idle_settings(
    source: Source, target: str, scheme: Scheme | None, recipe: Recipe, texts: Path | None
) -> None:
    """Raise for a setting that would change nothing: the user expects that it does."""
    if target in DENSE_TARGETS and scheme:
        raise ConfigError(f"{target} is not quantised; --scheme has no place there.")
    if recipe is not FOURGE and source.layout in FOLDER_LAYOUTS:
        raise ConfigError(
            f"{source.path} is NVFP4 already and keeps its scales.",
            fix="drop --recipe, or convert from the dense model",
        )
    if texts is not None and (scheme != "w4a4" or _calibrated(source)):
        raise ConfigError(
            "Nothing is calibrated here.", fix="add --scheme w4a4, or drop --calibration"
        )


def _calibrated(source: Source) -> bool:
    return any(name.endswith(".input_scale") for name in source.tensors)


def _without_input_scales(tensors: Tensors) -> Tensors:
    return {name: s for name, s in tensors.items() if not name.endswith(".input_scale")}


def _calibrated_outgoing(
    source: Source, target: str, keep: Sequence[str], recipe: Recipe, texts: Path | None
) -> Outgoing:
    if target == "dat":
        raise ConfigError(
            "The original .dat has no place for activation scales.", fix="use --to dat2"
        )
    model = load_model(source)
    if not nvfp4_layers(model):
        to_quantize(model, keep)  # refuses a name on the list that is no layer's
        quantize_(model, scheme="w4a4", keep=keep, recipe=recipe)
    for layer in nvfp4_layers(model).values():
        layer.scheme = "w4a4"
    calibrate_(model, source, texts)
    return outgoing_from_model(model, target, source.write_tokenizer, source.path.stem)


def save(
    model: Any,
    out: Path,
    target: str = "compressed-tensors",
    *,
    like: str | Path,
    overwrite: bool = False,
) -> None:
    """Write a model in memory, with the codes that its last forward used.

    Tokenizer, chat template and generation config are those of ``like``, its origin.

    Raises:
        OutputError, FormatError: it cannot be written there, or in that format.
    """
    source = open_source(like)
    outgoing = outgoing_from_model(model, target, source.write_tokenizer, source.path.stem)
    export(outgoing, out, target, overwrite=overwrite)


@dataclass(frozen=True, slots=True)
class Checked:
    """What ``check_export`` compared."""

    logits: int  # how many, all of them equal
    error: float  # relative error of the quantised weights against the original


def check_export(model: str | Path, exported: Path) -> Checked:
    """Load an export with our loader and with plain transformers, and compare every logit.

    Raises:
        CheckError: one differs.
    """
    from transformers import AutoModelForCausalLM

    source = open_source(exported)
    ours = load_model(source, dtype=torch.bfloat16)
    theirs = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.bfloat16)
    tokens_BT = source.tokenizer()(TEXTS[1], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        one, two = ours(tokens_BT).logits, theirs(tokens_BT).logits
    if not torch.equal(one, two):
        raise CheckError(
            "The exported file does not give our logits when plain transformers loads it.",
            why=f"they differ by up to {(one.float() - two.float()).abs().max().item():g}",
            fix="this should not happen; report it with the output of `fourge doctor`",
        )
    quantized = [row for row in inspect(exported, against=model).rows if row.kind == "nvfp4"]
    mean_square = sum((row.error or 0.0) ** 2 for row in quantized) / max(1, len(quantized))
    return Checked(one.numel(), mean_square**0.5)


def ask(model: str | Path, question: str, *, max_tokens: int = 48) -> str:
    """The answer of a model to one question, greedily decoded.

    Raises:
        DataError: the model has no chat template.
    """
    opened = open_any(model)
    template = Template(opened.source.tokenizer(), opened.template_arguments)
    session = Session(load(opened).model, template)
    return session.ask(question, limits=Limits(max_tokens=max_tokens)).reply.strip()
