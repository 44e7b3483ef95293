"""Build a model without a second copy of it: shapes first, then one tensor at a time.

The model is made on the meta device, where parameters have shapes and no memory. Each tensor is
then read, converted and put in place before the next is read, so the peak is the finished model
plus one tensor. A name or shape that does not match is refused before anything is read.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fourge.core.errors import FormatError, first_line
from fourge.formats.stored import KINDS, NVFP4, Stored, Tensors
from fourge.model.mixed import compute_ends_in_
from fourge.model.source import Source
from fourge.model.swap import compute_dtype, nvfp4_layers, quantize_, scale_groups_of
from fourge.nvfp4.gemm import Scheme

LM_HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
Progress = Callable[[str], None]


def load_model(
    source: Source,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    backend: str = "auto",
    codes_only: bool = False,
    narrow_ends: bool = False,
    progress: Progress | None = None,
) -> Any:
    """The model of a source, in memory, ready to run.

    Layers that the source holds in NVFP4 become NVFP4 layers that start with exactly its codes;
    with ``codes_only`` they have no dense weight at all, not even while loading.
    ``dtype`` defaults to bf16 on accelerators and float32 on the CPU. With ``narrow_ends`` an
    embedding and a head that the source holds in bf16 stay so and compute in float32.

    Raises:
        FormatError: tensors are missing, left over, or of another shape than the config says.
    """
    device = torch.device(device)
    dtype = dtype or compute_dtype(device)
    source = untied(source)
    model = empty_model(source.config, dtype)
    tensors = matched(model, source.tensors)
    matrices = {n: s for n, s in tensors.items() if s.kind == NVFP4}
    narrow_ends = narrow_ends and dtype == torch.float32
    narrow = _bf16_ends(model, tensors) if narrow_ends else []
    for name, stored in tensors.items():
        if stored.kind != NVFP4 and not name.endswith(".input_scale"):
            kept = torch.bfloat16 if name in narrow else dtype
            _place(model, name, _dense(name, stored), kept, device)
            _tell(progress, name)
    for name, stored in matrices.items():
        one = torch.empty((), dtype=dtype, device=device)
        empty = one.expand(stored.shape) if codes_only else one.new_empty(stored.shape)
        _place(model, name, empty, dtype, device)
    model.tie_weights()
    model.to(device)
    if matrices:
        _load_matrices(model, tensors, backend, codes_only, progress)
    if narrow_ends:
        compute_ends_in_(model, dtype)
    return model.eval()


def loader_nbytes(source: Source, dtype: torch.dtype) -> int:
    """What ``load_model`` holds at most beside the finished model: one tensor as it is read.

    One that lies in the file in the model's dtype is read into its place. A quantised one is
    there as stored and, decoded, as float32.
    """
    return max((_while_read(stored, dtype) for stored in source.tensors.values()), default=0)


def _while_read(stored: Stored, dtype: torch.dtype) -> int:
    kind = KINDS.get(stored.kind)
    if kind == dtype:
        return 0
    return stored.nbytes + (4 * prod(stored.shape) if kind is None else 0)


def _bf16_ends(model: Any, tensors: Tensors) -> list[str]:
    """Which of embedding and head the source holds in bf16, and the model can."""
    can = {LM_HEAD, EMBEDDING} if type(model.get_input_embeddings()) is nn.Embedding else {LM_HEAD}
    return [name for name in can if name in tensors and tensors[name].kind == "bf16"]


def empty_model(config: Any, dtype: torch.dtype) -> Any:
    """The model of a config, with parameters on the meta device and real buffers.

    Raises:
        FormatError: transformers cannot build it, or its experts are fused.
    """
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    try:
        with init_empty_weights(include_buffers=False):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        model.tie_weights()  # moving parameters to meta one by one has parted the tied ones
    except Exception as error:  # transformers raises whatever its constructors met
        raise FormatError(
            "transformers cannot build this config.", why=first_line(error)
        ) from error
    refuse_fused_experts(model)
    return model


def refuse_fused_experts(model: nn.Module) -> None:
    """Raise for mixture-of-experts models that keep all experts in one 3-D parameter."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 3 and "expert" in name:
            raise FormatError(
                f"{name} holds {parameter.shape[0]} experts in one 3-D parameter.",
                why="NVFP4 scales belong to matrices; quantising the stack would share them "
                "between experts, and leaving it out would quantise a fraction of the model",
                fix="use a dense model",
            )


def untied(source: Source) -> Source:
    """The source, with a config that is untied if the file has a head of its own.

    A quantised head cannot be the embedding, whatever the config says. A dense head beside a
    tied config is the embedding written twice, and is left to the embedding.
    """
    head = source.tensors.get(LM_HEAD)
    if head is None or not source.config.tie_word_embeddings:
        return source
    if head.kind != NVFP4 and _same(head, source.tensors.get(EMBEDDING)):
        tensors = {name: s for name, s in source.tensors.items() if name != LM_HEAD}
        return replace(source, tensors=tensors)
    return replace(source, config=untied_config(source.config))


def untied_config(config: Any) -> Any:
    """A copy of a config whose head is not the embedding."""
    config = copy.deepcopy(config)
    config.tie_word_embeddings = False
    return config


def _same(one: Stored, other: Stored | None) -> bool:
    return other is not None and other.kind != NVFP4 and torch.equal(one.dense(), other.dense())


def matched(model: nn.Module, tensors: Tensors) -> dict[str, Stored]:
    """The tensors in the model's shapes.

    Raises:
        FormatError: they are not exactly the model's parameters, by name and shape.
    """
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters()}
    wanted |= {n: tuple(b.shape) for n, b in saved_buffers(model).items()}
    given = {n: s for n, s in tensors.items() if not _scales_an_input(n, tensors)}
    missing = sorted(wanted.keys() - given.keys())
    extra = sorted(given.keys() - wanted.keys())
    if missing or extra:
        raise FormatError(
            "The tensors are not those of the model.",
            why="; ".join(
                _listed(*x) for x in (("missing", missing), ("left over", extra)) if x[1]
            ),
            fix="the config and the weights must belong together",
        )
    return {name: _shaped(name, s, wanted.get(name, s.shape)) for name, s in tensors.items()}


def _scales_an_input(name: str, tensors: Tensors) -> bool:
    weight = tensors.get(f"{name.removesuffix('.input_scale')}.weight")
    return name.endswith(".input_scale") and weight is not None and weight.kind == NVFP4


def _shaped(name: str, stored: Stored, shape: tuple[int, ...]) -> Stored:
    """The tensor; one column of values, as NF4 files have it, takes the model's shape."""
    if stored.shape == shape or name.endswith(".input_scale"):
        return stored
    if stored.shape != (prod(shape),) or stored.kind == NVFP4:
        raise FormatError(f"{name} has shape {stored.shape}; the config asks for {shape}.")
    return Stored(shape, stored.kind, stored.nbytes, lambda: stored.dense().view(shape))


def saved_buffers(model: nn.Module) -> dict[str, Tensor]:
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in saved}


def _listed(word: str, names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{word}: {', '.join(names[:3])}{more}"


def _dense(name: str, stored: Stored) -> Tensor:
    value = stored.dense()
    require_finite(name, value)
    return value


def require_finite(name: str, value: Tensor) -> None:
    """Raise for a weight that no model should be given and no format should carry on."""
    if not value.is_floating_point() or not value.numel():
        return
    low, high = torch.aminmax(value)  # no temporary, unlike isfinite; a NaN makes both NaN
    if not (torch.isfinite(low) and torch.isfinite(high)):
        raise FormatError(
            f"{name} has a value that is not finite.",
            why="a NaN or an infinity in a weight makes every answer NaN",
            fix="export or train again from a checkpoint that is sound",
        )


def _place(
    model: nn.Module, name: str, value: Tensor, dtype: torch.dtype, device: torch.device
) -> None:
    """Put a value in the place of a meta parameter; a buffer keeps its own dtype."""
    parent, _, child = name.rpartition(".")
    module = model.get_submodule(parent)
    if child in module._buffers:
        module._buffers[child] = value.to(device)
    else:
        module._parameters[child] = nn.Parameter(value.to(device=device, dtype=dtype))


def _load_matrices(
    model: nn.Module, tensors: Tensors, backend: str, codes_only: bool, progress: Progress | None
) -> None:
    scales = {n: s for n, s in tensors.items() if n.endswith(".input_scale")}
    quantized = {n.removesuffix(".weight") for n, s in tensors.items() if s.kind == NVFP4}
    keep = [n for n, m in model.named_modules() if type(m) is nn.Linear and n not in quantized]
    scheme: Scheme = "w4a4" if scales else "w4a16"
    quantize_(model, scheme=scheme, keep=keep, backend=backend)
    layers = nvfp4_layers(model)
    for name, stored in scales.items():
        layer = layers[name.removesuffix(".input_scale")]
        layer.input_scale = stored.dense().float().reshape(()).to(layer.weight.device)
    names = {id(layer): f"{name}.weight" for name, layer in layers.items()}
    for group in scale_groups_of(model):
        matrices = [tensors[names[id(m)]].matrix().to(m.weight.device) for m in group.members]
        if codes_only:
            group.keep_codes_only_(matrices)
        else:
            group.load_codes_(matrices)
        for member in group.members:
            _tell(progress, names[id(member)])


def _tell(progress: Progress | None, name: str) -> None:
    if progress:
        progress(name)
