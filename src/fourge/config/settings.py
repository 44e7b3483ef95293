"""The parts of a run file, with every default beside its name.

A path is made absolute while it is checked: from the folder of the file that is being read (the
``folder`` of the validation context), or from the current one where settings are made in code.
"""

import math
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from fourge.config.strict import Many, Number, Strict, Text, shown
from fourge.guard.sizes import parse_size


def _absolute(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str) or not value:
        return value
    folder = info.context["folder"] if info.context else Path.cwd()
    try:
        return (folder / Path(value).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"is {shown(value)}; it must be a path ({error})") from error


def _existing(path: Path, info: ValidationInfo) -> Path:
    """Only a file that is being read is held to this: a past run may outlive its data."""
    if info.context:
        try:
            path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{path} could not be read: {error.strerror}") from error
    return path


def _local_or_name(value: str, info: ValidationInfo) -> str:
    """A path that is there, made absolute; anything else may be the name of a model."""
    path = _absolute(value, info)
    with suppress(OSError):
        return str(path) if isinstance(path, Path) and path.exists() else value
    return value


def _recompute(value: object) -> object:
    """A yes or a no is what most would write."""
    if isinstance(value, bool):
        return "block" if value else "none"
    return value


def _size_or_auto(value: str) -> str:
    if value != "auto":
        try:
            parse_size(value)
        except ValueError as error:
            raise ValueError(f"is {shown(value)}; it must be auto or a size, as 100GiB") from error
    return value


def _plain(value: Any) -> Any:
    """Refuse what a JSON file could not hold, such as a date."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise ValueError(f"the name {shown(name)} is not text")
            _plain(each)
    elif isinstance(value, list):
        for each in value:
            _plain(each)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError(f"{shown(value)} is neither text nor a number; put it in quotes")
    return value


Count = Annotated[int, Field(ge=1)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
Decay = Annotated[Number, Field(ge=0, lt=1)]
SizeOrAuto = Annotated[Text, AfterValidator(_size_or_auto)]
PathHere = Annotated[Path, BeforeValidator(_absolute)]


class ModelSettings(Strict):
    path: Annotated[Text, AfterValidator(_local_or_name)]  # a folder, a file, or a name
    scheme: Literal["w4a16", "w4a4", "none"] = "w4a16"
    keep_bf16: Many[Text] = ("embed_tokens", "lm_head", "norm")
    backend: Literal["auto", "dequant", "fp4"] = "auto"
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"


# answer: what the rows say. base: what the base model would say in its place. alone: of the last
# answer, what the base would say to its question alone; of those before it, what the rows say.
Learn = Literal["answer", "base", "alone"]


class MixEntry(Strict):
    path: Annotated[PathHere, AfterValidator(_existing)]
    weight: NotNegative | None = None  # all entries have one, or none has
    learn: Learn = "answer"


class DataSettings(Strict):
    mix: Annotated[Many[MixEntry], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=8)] = 512
    order: Literal["random", "sequential"] = "random"
    template: Annotated[dict[str, Any], AfterValidator(_plain)] = Field({})  # its arguments


class TrainSettings(Strict):
    steps: Count | None = None  # this or epochs
    epochs: Positive | None = None
    batch: Count = 8
    accumulate: Count = 1
    seed: int = 0
    recompute: Annotated[Literal["block", "light", "none"], BeforeValidator(_recompute)] = "block"
    release: bool = True  # use each gradient inside backward, and let it go
    loss_chunk: Count | None = None  # positions; null: chosen by memory (train/loss.py)
    kl_to_base: NotNegative = 0.0  # how much rows that are held to it count
    kl_budget: Positive | None = None  # nats per held position: the weight follows it; null: fixed
    kl_top_k: Count = 32
    kl_teacher: Literal["dense", "nvfp4"] = "dense"  # the base as it is, or as it would be served
    last_layers: Count | None = None  # null: all of them
    save_every_steps: Count | None = None
    save_every_minutes: Positive = 10.0
    keep_checkpoints: Count = 2


class OptimGroup(Strict):
    names: Many[Text] = ()  # glob patterns
    lower: Share = 0.0  # of the layers, from the first on: these too
    lr: NotNegative | None = None
    weight_decay: NotNegative | None = None
    every: Count = 1  # steps from one in which these learn to the next; they rest between

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if not self.names and not self.lower:
            raise ValueError("a group needs names or lower: the layers it is for")
        if self.every > 1 and not self.lower:
            raise ValueError("every needs lower: only what is below the rest can be left out")
        return self


class OptimSettings(Strict):
    lr: Positive = 1e-5
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: NotNegative = 0.05  # below 1: a share of the steps; else a number of steps
    final_lr: Share = 0.0  # as a share of lr
    master: Literal["bf16", "bf16+8", "fp32", "nvfp4"] = "bf16"
    moments: Literal["fp32", "int8", "nvfp4"] = "int8"
    beta1: Decay = 0.9
    beta2: Decay = 0.95
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    clip: Positive | None = 1.0
    clip_method: Literal["auto", "global", "tensor", "two-pass"] = "auto"
    chunk_rows: Count | None = None
    groups: Many[OptimGroup] = ()


class MemorySettings(Strict):
    limit: SizeOrAuto = "auto"  # of the whole machine, as 100GiB; auto: all but guard.floor

    @property
    def limit_bytes(self) -> int | None:
        """The limit that is asked for; None for what the machine can give."""
        return None if self.limit == "auto" else parse_size(self.limit)


class GuardSettings(Strict):
    enabled: bool = True
    floor: SizeOrAuto = "auto"  # what must stay left; auto: 8GiB, a tenth below 64GiB
    over_s: NotNegative = 0.0
    grace_s: NotNegative = 20.0  # from being asked to leave to being killed
    silent_s: NotNegative = 1800.0  # without a micro-step; 0: any time
