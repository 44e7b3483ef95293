"""Options that several verbs have, declared once, and what a shell may complete them to."""

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from fourge.model.embedded import EMBEDDED

SHAPES = tuple(f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b"))


class ModelName(StringParamType):
    """A path or a name; a shell completes it to the names that are known, and to files."""

    name = "model"

    def __init__(self, *known: str) -> None:
        self.known = known

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = [CompletionItem(name) for name in self.known if name.startswith(incomplete)]
        return [*names, CompletionItem(incomplete, type="file")]


COUNT = click.IntRange(1)
MODEL = ModelName(EMBEDDED)
MODEL_OR_SHAPE = ModelName(EMBEDDED, *SHAPES)

device_option = click.option(
    "--device", default="auto", show_default=True, type=click.Choice(("auto", "cpu", "cuda")),
    help="Where to compute; auto: CUDA where there is one.",
)  # fmt: skip
dtype_option = click.option(
    "--dtype", default="auto", show_default=True,
    type=click.Choice(("auto", "float32", "bfloat16", "float16")),
    help="To compute in; auto: float32 on a CPU, else bfloat16.",
)  # fmt: skip
path_option = click.option(
    "--path", default="auto", show_default=True,
    type=click.Choice(("auto", "dense", "train", "packed")),
    help="NVFP4 codes made from master weights (train) or codes alone (packed): the same logits.",
)  # fmt: skip
master_option = click.option(
    "--master", default="bf16", show_default=True,
    type=click.Choice(("bf16", "bf16+8", "fp32", "nvfp4")),
    help="The form of the weights that updates are added to.",
)  # fmt: skip
moments_option = click.option(
    "--moments", default="int8", show_default=True, type=click.Choice(("fp32", "int8", "nvfp4")),
    help="The form of what AdamW remembers of each weight.",
)  # fmt: skip
recompute_option = click.option(
    "--recompute", default="block", show_default=True,
    type=click.Choice(("block", "light", "none")),
    help="What the backward pass computes again instead of keeping it.",
)  # fmt: skip
release_option = click.option(
    "--no-release", is_flag=True, help="Keep all gradients until the update."
)
