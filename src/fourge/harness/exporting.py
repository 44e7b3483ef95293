"""The trained model, as other tools read it, at the end of a run.

A model that is whole in memory is written from there. One that is sharded is written from the
checkpoint that the run has just saved, tensor by tensor, by the first of its crew: nobody gathers
more than one.
"""

from dataclasses import replace
from pathlib import Path

from fourge.checkpoint.source import open_any
from fourge.harness.resuming import last_checkpoint
from fourge.harness.setup import Ready
from fourge.model.export import Outgoing, export, outgoing_from_model, outgoing_from_source


def write_export(ready: Ready, out: Path) -> Path:
    """Export what is trained; a crew waits for its first."""
    target = "safetensors" if ready.checked.run.model.scheme == "none" else "compressed-tensors"
    if ready.crew.size == 1:
        source = ready.checked.source
        name = source.path.stem
        outgoing = outgoing_from_model(ready.model, target, source.write_tokenizer, name)
        export(outgoing, out, target, overwrite=True)
        return out
    from fourge.shard.agreement import together
    from fourge.shard.ranks import ranks_of

    def write() -> None:
        if ready.crew.is_first:
            export(_from_checkpoint(ready, target), out, target, overwrite=True)

    together(ranks_of(ready.crew), write)
    return out


def _from_checkpoint(ready: Ready, target: str) -> Outgoing:
    run = ready.checked.run
    source = open_any(last_checkpoint(run)).source
    scales = {n: s for n, s in source.tensors.items() if n.endswith(".input_scale")}
    weights = {n: s for n, s in source.tensors.items() if n not in scales}
    source = replace(source, tensors=weights, path=ready.checked.source.path)
    outgoing = outgoing_from_source(source, target, keep=run.model.keep_bf16)
    return replace(outgoing, tensors={**outgoing.tensors, **scales})
