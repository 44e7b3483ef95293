"""AdamW for every weight of a model on one machine, as a ``torch.optim.Optimizer``.

Used as any torch optimizer (accumulate, schedule, ``step()``), or with **release**:

    with optimizer.released():
        loss.backward()      # each weight is updated when its gradient is ready, which is freed

Then one gradient exists at a time. What that costs is enforced: in the block every parameter
that requires a gradient must get exactly one, or it raises. If it does, some weights have moved and
some have not, and the way on is the last checkpoint.

Clipping is never silently absent. ``step()`` clips by the exact global norm. With release a
tensor is clipped by its own history (``clip.py``), or, with ``clip_method="two-pass"``, by the
exact global norm, which a first backward measures: call ``backward(loss)``, which does both.

A gradient that is not finite raises before any weight changes, or, with release, before any
further one does. After a step, ``grad_norm`` is the global norm before clipping and
``moved.share`` the share of (sampled) weights that are not what they were.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from fourge.core.crew import ALONE, Crew
from fourge.core.errors import ConfigError, DivergedError
from fourge.nvfp4.packed import PackedWeight
from fourge.optim.clip import global_scale, require_finite_square, square_of, tensor_scale
from fourge.optim.kernel import Numbers
from fourge.optim.masters import MASTERS, MasterFormat
from fourge.optim.moments import FORMATS, MomentFormat, reach_of
from fourge.optim.moved import Moved
from fourge.optim.part import Part, whole
from fourge.optim.tensor import new_state, update_tensor_

ClipMethod = Literal["tensor", "two-pass"]


class AdamW(Optimizer):
    """AdamW whose master weights and moments have the forms of ``masters`` and ``moments``.

    A parameter's dtype is its master's: bf16, float32, or a ``PackedWeight``. Give
    ``model.named_parameters()``, or groups of them: names select the noise of the stochastic
    rounding and are in the error messages. Where several processes share the parameters,
    ``part_of`` says what of each is here, and ``crew`` sums norms over them.

    Raises:
        ConfigError: a setting that cannot be, or a parameter of another form than ``master``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-5,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        master: MasterFormat = "bf16",
        moments: MomentFormat = "int8",
        clip: float | None = None,
        clip_method: ClipMethod = "tensor",
        chunk_rows: int | None = None,
        seed: int = 0,
        crew: Crew = ALONE,
        part_of: Callable[[Tensor], Part] = whole,
    ) -> None:
        _require_among("master", master, MASTERS)
        _require_among("moments", moments, FORMATS)
        _require_among("clip_method", clip_method, ("tensor", "two-pass"))
        if clip is not None and not clip > 0:
            raise ConfigError(f"clip is {clip}; it must be above 0, or None.")
        if chunk_rows is not None and chunk_rows < 1:
            raise ConfigError(f"chunk_rows is {chunk_rows}; it must be 1 or more.")
        self.master, self.moments = master, moments
        self.clip, self.clip_method = clip, clip_method
        self.chunk_rows, self.seed = chunk_rows, seed
        self._crew, self._part_of = crew, part_of
        self.grad_norm = float("nan")
        self.moved = Moved()
        self._half_done = False
        self._measured: float | None = None  # the factor that the first of two passes found
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        _check_numbers(group)
        if self.moments != "fp32":
            # Stored with the group: codes made under one reach must be read under it.
            group.setdefault("reach", reach_of(*group["betas"]))
        group.setdefault("moments", self.moments)
        for name, param, _ in self.named():
            _require_form(name, param, self.master)

    def named(self) -> list[tuple[str, Tensor, dict[str, Any]]]:
        """Each parameter with its name and its group; without names, numbered."""
        everything = [
            (name, param, group)
            for group in self.param_groups
            for name, param in zip(
                group.get("param_names") or [""] * len(group["params"]),
                group["params"],
                strict=True,
            )
        ]
        return [(name or f"parameter {i}", p, g) for i, (name, p, g) in enumerate(everything)]

    def _learning(self) -> list[tuple[str, Tensor, dict[str, Any]]]:
        """Those that get a gradient: others rest (``train/resting.py``)."""
        return [(name, param, group) for name, param, group in self.named() if param.requires_grad]

    def allocate(self) -> None:
        """Make the state of every parameter now, instead of at its first update.

        Made one by one between short-lived tensors, it would leave holes in the C library's heap
        when those are freed: 12 % of a step's peak, measured on a 0.6B model.
        """
        for _, param, _ in self.named():
            self.state_of(param)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        self._require_whole()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        ready = [(n, p, g) for n, p, g in self.named() if p.grad is not None]
        squares = self._squares([param for _, param, _ in ready])
        for (name, _, _), square in zip(ready, squares, strict=True):
            require_finite_square(name, square, others_changed=False)
        self.grad_norm = sqrt(sum(squares))
        scale = global_scale(self.grad_norm, self.clip)
        self.moved, self._half_done = Moved(), True
        for name, param, group in ready:
            self._update_(name, param, group, scale)
        self._half_done = False
        return loss

    def backward(self, loss: Tensor) -> None:
        """One step with release: the backward pass, or both where clipping takes two."""
        if self.takes_two_passes:
            self._measure(loss)
        with self.released():
            loss.backward()

    @contextmanager
    def released(self) -> Iterator[None]:
        """One step with release. Exactly one backward must run inside.

        Raises:
            ConfigError: a gradient was there already, came twice, or did not come.
            DivergedError: a gradient is not finite.
        """
        self._require_whole()
        if self.takes_two_passes and self._measured is None:
            raise _misuse("Two-pass clipping needs its first pass.", "call optimizer.backward()")
        waiting = {name: (param, group) for name, param, group in self._learning()}
        for name, (param, _) in waiting.items():
            if param.grad is not None:
                raise _misuse(f"{name} has a gradient already.", "call zero_grad() first")
        self.moved, square = Moved(), 0.0

        def on_gradient(name: str, param: Tensor) -> None:
            nonlocal square
            if name not in waiting:
                raise _misuse(f"{name} got a second gradient.", "call backward once in the block")
            assert param.grad is not None, f"{name}: the hook ran without a gradient"
            (own,) = self._squares([param])
            require_finite_square(name, own, others_changed=self._half_done)
            _, group = waiting.pop(name)
            square += own
            self._half_done = True
            self._update_(name, param, group, self._released_scale(param, sqrt(own)))
            param.grad = None

        with _hooked(self._learning(), on_gradient):
            yield
        if waiting:
            raise _misuse(
                f"{len(waiting)} of {len(self._learning())} parameters got no gradient; "
                f"the first is {next(iter(waiting))}.",
                "give the optimizer only parameters that the loss depends on",
            )
        self.grad_norm, self._measured, self._half_done = sqrt(square), None, False

    @property
    def takes_two_passes(self) -> bool:
        """Whether ``backward`` runs the backward pass twice."""
        return self.clip is not None and self.clip_method == "two-pass"

    def _measure(self, loss: Tensor) -> None:
        """The first of two passes: the global norm, and no gradient left behind."""
        square = 0.0

        def on_gradient(name: str, param: Tensor) -> None:
            nonlocal square
            assert param.grad is not None, f"{name}: the hook ran without a gradient"
            (own,) = self._squares([param])
            require_finite_square(name, own, others_changed=False)
            square += own
            param.grad = None

        with _hooked(self._learning(), on_gradient):
            loss.backward(retain_graph=True)
        self._measured = global_scale(sqrt(square), self.clip)

    def _squares(self, params: list[Tensor]) -> list[float]:
        """The squared norm of each gradient, over all processes that have a part of it."""
        parts = [self._part_of(param) for param in params]
        return self._crew.sums(
            [square_of(part.grad) if part.counts else 0.0 for part in parts]  # type: ignore[arg-type]
        )

    def _released_scale(self, param: Tensor, norm: float) -> float:
        if self.clip is None:
            return 1.0
        if self._measured is not None:
            return self._measured
        return tensor_scale(norm, self.clip, self.state[param])

    @torch.no_grad()
    def _update_(self, name: str, param: Tensor, group: dict[str, Any], scale: float) -> None:
        state = self.state_of(param)
        state["step"] += 1
        numbers = _numbers(group, state["step"], scale).tensor(param.device)
        update_tensor_(
            name, self._part_of(param), state, numbers, moments=self.moments, seed=self.seed,
            chunk_rows=self.chunk_rows, moved=self.moved,
        )  # fmt: skip

    def state_of(self, param: Tensor) -> dict[str, Any]:
        """What is kept for a parameter; made now, if it is not there yet."""
        state: dict[str, Any] = self.state[param]
        if "step" not in state:
            state.update(new_state(self._part_of(param), self.master, self.moments))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As any optimizer's, but the stored state keeps its dtypes: codes are not numbers."""
        for group in state_dict["param_groups"]:
            if group.get("moments") != self.moments:
                raise ConfigError(
                    f"The state has {group.get('moments')} moments; this optimizer {self.moments}."
                )
        super().load_state_dict({**state_dict, "state": {}})
        params = [param for group in self.param_groups for param in group["params"]]
        for index, stored in state_dict["state"].items():
            param = params[index]
            self.state[param] = {
                key: value.to(param.device) if isinstance(value, Tensor) else value
                for key, value in stored.items()
            }
        self._half_done = False

    def _require_whole(self) -> None:
        if self._half_done:
            raise DivergedError(
                "The weights are between two steps.",
                why="a step raised after some of them had changed",
                fix="load the last checkpoint",
            )


def _numbers(group: dict[str, Any], step: int, grad_scale: float) -> Numbers:
    (beta1, beta2), lr = group["betas"], float(group["lr"])
    return Numbers(
        beta1=beta1,
        one_minus_beta1=1 - beta1,
        beta2=beta2,
        one_minus_beta2=1 - beta2,
        step_size=lr / (1 - beta1**step),
        keep=1 - lr * group["weight_decay"],
        root_scale=1 / sqrt(1 - beta2**step),
        eps=group["eps"],
        reach=group.get("reach", 0.0),
        grad_scale=grad_scale,
    )


@contextmanager
def _hooked(
    named: list[tuple[str, Tensor, dict[str, Any]]], hook: Callable[[str, Tensor], None]
) -> Iterator[None]:
    handles = [
        param.register_post_accumulate_grad_hook(partial(hook, name)) for name, param, _ in named
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _misuse(problem: str, fix: str) -> ConfigError:
    why = "a released gradient is used once and is gone"
    return ConfigError(problem, why=why, fix=fix)


def _require_among(setting: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{setting} is {value!r}.", fix=f"one of: {', '.join(choices)}")


def _check_numbers(group: dict[str, Any]) -> None:
    for name, value in zip(("beta1", "beta2"), group["betas"], strict=True):
        if not 0 <= value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 0 and below 1.")
    if not group["eps"] > 0:
        raise ConfigError(f"eps is {group['eps']}; it must be above 0.")
    for name in ("lr", "weight_decay"):
        if not float(group[name]) >= 0:
            raise ConfigError(f"{name} is {group[name]}; it must not be negative.")


def _require_form(name: str, param: Tensor, master: MasterFormat) -> None:
    """Raise for a parameter that this kind of master could not update faithfully."""
    if isinstance(param, PackedWeight) and master == "nvfp4":
        return
    allowed = (torch.float32,) if master == "fp32" else (torch.bfloat16, torch.float32)
    if isinstance(param, PackedWeight) or param.dtype not in allowed:
        form = "packed" if isinstance(param, PackedWeight) else str(param.dtype).split(".")[-1]
        raise ConfigError(
            f"{name} is {form}, which master {master} cannot be.",
            fix='call model.float() for master "fp32", model.bfloat16() for the others',
        )
