"""What is served is what was made: every format, read by its own tools where they exist."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from fourge.core.errors import ConfigError, FormatError, OutputError
from fourge.formats.stored import NVFP4, Tensors, bytes_of
from fourge.model.build import load_model
from fourge.model.export import TARGETS, export, outgoing_from_model, outgoing_from_source
from fourge.model.source import Source, open_source, open_tensors
from fourge.model.swap import nvfp4_layers, quantize_
from fourge.nvfp4.linear import calibrating
from fourge.nvfp4.matrix import dequantize
from fourge.nvfp4.recipe import MODELOPT
from tests.conftest import TEMPLATE, tiny_model

TOKENS = torch.tensor([[5, 80, 33, 200, 17, 4, 99, 250]])
Folder = Callable[..., Path]
HOLD_BOTH_SCALES = ["compressed-tensors", "modelopt", "gguf", "dat2"]


def path_for(folder: Path, target: str) -> Path:
    return folder / ("model.gguf" if target == "gguf" else target)


def convert(source: Source, folder: Path, target: str, **options: Any) -> Path:
    out = path_for(folder, target)
    export(outgoing_from_source(source, target, **options), out, target)
    return out


def matrices(tensors: Tensors) -> dict[str, tuple[bytes, bytes, float]]:
    """Codes, block scales and tensor scale of every NVFP4 weight."""
    found = {}
    for name, stored in tensors.items():
        if stored.kind == NVFP4:
            matrix = stored.matrix()
            scales = matrix.block_scale_RB.view(torch.uint8).numpy().tobytes()
            codes = matrix.packed_RC.numpy().tobytes()
            found[name] = (codes, scales, matrix.tensor_scale.item())
    return found


def plain_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


@pytest.mark.parametrize("scheme", ["w4a16", "w4a4"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["qwen3", "llama", "qwen2", "gemma3_text"])
def test_plain_transformers_gives_our_logits(
    tiny_folder: Folder, tmp_path: Path, family: str, tied: bool, scheme: Any
) -> None:
    source = open_source(tiny_folder(family, tied=tied))
    model = load_model(source, dtype=torch.bfloat16)
    quantize_(model, scheme=scheme)
    if scheme == "w4a4":
        with calibrating(model), torch.no_grad():
            model(TOKENS)
    outgoing = outgoing_from_model(model, "compressed-tensors", source.write_tokenizer, "tiny")
    export(outgoing, tmp_path / "out", "compressed-tensors")
    theirs = plain_transformers(tmp_path / "out")
    ours = load_model(open_source(tmp_path / "out"), dtype=torch.bfloat16)
    with torch.no_grad():
        expected = model(TOKENS).logits
        assert torch.equal(theirs(TOKENS).logits, expected)
        assert torch.equal(ours(TOKENS).logits, expected)
    assert len(nvfp4_layers(ours)) == 14
    assert (
        theirs.lm_head.weight.data_ptr() == theirs.model.embed_tokens.weight.data_ptr() or not tied
    )


def test_a_quantised_head_is_served_as_trained(tiny_folder: Folder, tmp_path: Path) -> None:
    source = open_source(tiny_folder("qwen3", tied=True))
    model = load_model(source, dtype=torch.bfloat16)
    quantize_(model, keep=["embed_tokens"])
    outgoing = outgoing_from_model(model, "compressed-tensors", source.write_tokenizer, "tiny")
    export(outgoing, tmp_path / "live", "compressed-tensors")
    convert(source, tmp_path, "compressed-tensors", keep=["embed_tokens"])
    with torch.no_grad():
        expected = model(TOKENS).logits
        assert torch.equal(plain_transformers(tmp_path / "live")(TOKENS).logits, expected)
        served = plain_transformers(tmp_path / "compressed-tensors")
        assert torch.equal(served(TOKENS).logits, expected)


def test_a_trained_model_exports_the_codes_of_its_last_forward(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    source = open_source(tiny_folder("qwen3"))
    model = load_model(source, dtype=torch.bfloat16)
    quantize_(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(3):
        model(TOKENS, labels=TOKENS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        expected = model(TOKENS).logits
    outgoing = outgoing_from_model(model, "compressed-tensors", source.write_tokenizer, "tiny")
    export(outgoing, tmp_path / "out", "compressed-tensors")
    with torch.no_grad():
        assert torch.equal(plain_transformers(tmp_path / "out")(TOKENS).logits, expected)
    untrained = matrices(open_tensors(convert(source, tmp_path, "modelopt"))[1])
    assert matrices(open_tensors(tmp_path / "out")[1]) != untrained


@pytest.mark.parametrize("last", HOLD_BOTH_SCALES)
@pytest.mark.parametrize("middle", HOLD_BOTH_SCALES)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_there_and_back_is_the_identity(
    tiny_folder: Folder, tmp_path: Path, family: str, middle: str, last: str
) -> None:
    first = convert(open_source(tiny_folder(family)), tmp_path / "first", last)
    there = convert(open_source(first), tmp_path / "there", middle)
    back = convert(open_source(there), tmp_path / "back", last)
    original = matrices(open_tensors(first)[1])
    assert len(original) == 14
    assert matrices(open_tensors(there)[1]) == original
    assert matrices(open_tensors(back)[1]) == original


@pytest.mark.parametrize("through", HOLD_BOTH_SCALES)
def test_the_single_level_dat_survives_every_other_format(
    tiny_folder: Folder, tmp_path: Path, through: str
) -> None:
    first = convert(open_source(tiny_folder("qwen3")), tmp_path / "a", "dat")
    there = convert(open_source(first), tmp_path / "b", through)
    back = convert(open_source(there), tmp_path / "c", "dat")
    assert (back / "model.dat").read_bytes() == (first / "model.dat").read_bytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_target_opens_again_with_all_its_tensors(
    tiny_folder: Folder, tmp_path: Path, target: str, family: str
) -> None:
    source = open_source(tiny_folder(family, tied=False))
    again = open_source(convert(source, tmp_path, target))
    assert set(again.tensors) == set(source.tensors)
    assert {n: s.shape for n, s in again.tensors.items()} == {
        n: s.shape for n, s in source.tensors.items()
    }
    for name, stored in again.tensors.items():
        if stored.kind != NVFP4:
            value, original = stored.dense().float(), source.tensors[name].dense().float()
            assert torch.equal(value, original), name
    model = load_model(again, dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.isfinite(model(TOKENS).logits).all()


@pytest.mark.filterwarnings("ignore")  # ModelOpt's own, about torch and transformers
def test_modelopt_files_are_those_of_its_own_exporter(tiny_folder: Folder, tmp_path: Path) -> None:
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from safetensors.torch import load_file

    folder = tiny_folder("llama", dtype=torch.float32)
    theirs = load_model(open_source(folder), dtype=torch.float32)

    def feed(model: Any) -> None:
        with torch.no_grad():
            model(TOKENS)

    mtq.quantize(theirs, mtq.NVFP4_DEFAULT_CFG, forward_loop=feed)
    export_hf_checkpoint(theirs, export_dir=tmp_path / "theirs")
    expected = load_file(tmp_path / "theirs" / "model.safetensors")
    out = convert(open_source(folder), tmp_path, "modelopt", recipe=MODELOPT)
    ours = load_file(out / "model.safetensors")
    compared = 0
    for name, value in expected.items():
        if name.endswith((".weight", "weight_scale", "weight_scale_2")) and "proj" in name:
            assert value.dtype == ours[name].dtype, name
            assert value.shape == ours[name].shape, name
            assert bytes_of(value) == bytes_of(ours[name]), name
            compared += 1
    assert compared == 14 * 3


def test_the_gguf_package_reads_our_values(tiny_folder: Folder, tmp_path: Path) -> None:
    source = open_source(tiny_folder("qwen3"))
    out = convert(source, tmp_path, "gguf")
    tensors = {t.name: t for t in gguf.GGUFReader(out).tensors}
    expected = matrices(open_tensors(out)[1])
    assert len(expected) == 14
    for layer in range(2):
        for ours, theirs in (("self_attn.q_proj", "attn_q"), ("mlp.down_proj", "ffn_down")):
            tensor = tensors[f"blk.{layer}.{theirs}.weight"]
            scale = tensors[f"blk.{layer}.{theirs}.scale"].data
            assert tensor.tensor_type == gguf.GGMLQuantizationType.NVFP4
            decoded = gguf.quants.dequantize(tensor.data, tensor.tensor_type) * scale
            stored = open_source(out).tensors[f"model.layers.{layer}.{ours}.weight"]
            assert np.array_equal(decoded, dequantize(stored.matrix()).numpy())


@pytest.mark.parametrize("family", ["qwen3", "llama", "qwen2"])
def test_a_gguf_made_from_a_folder_is_the_same_model(
    tiny_folder: Folder, tmp_path: Path, family: str
) -> None:
    """Every number of the config goes through the metadata, epsilon and rotary base included."""
    source = open_source(tiny_folder(family))
    one = load_model(open_source(convert(source, tmp_path, "compressed-tensors")))
    two = load_model(open_source(convert(source, tmp_path, "gguf")))
    with torch.no_grad():
        assert torch.equal(one(TOKENS).logits, two(TOKENS).logits)


def test_a_foreign_alignment_is_not_taken_over(tiny_folder: Folder, tmp_path: Path) -> None:
    source = open_source(convert(open_source(tiny_folder("llama")), tmp_path, "gguf"))
    aligned = replace(
        source, gguf_metadata=(source.gguf_metadata or {}) | {"general.alignment": 64}
    )
    again = convert(aligned, tmp_path / "again", "gguf")
    assert matrices(open_tensors(again)[1]) == matrices(source.tensors)


def test_a_quantised_head_has_its_input_scale(tiny_folder: Folder, tmp_path: Path) -> None:
    source = open_source(tiny_folder("qwen3", tied=True))
    model = load_model(source, dtype=torch.bfloat16)
    quantize_(model, scheme="w4a4", keep=["embed_tokens"])
    with calibrating(model), torch.no_grad():
        model(TOKENS)
    outgoing = outgoing_from_model(model, "compressed-tensors", source.write_tokenizer, "tiny")
    export(outgoing, tmp_path / "out", "compressed-tensors")
    with torch.no_grad():
        expected = model(TOKENS).logits
        assert torch.equal(plain_transformers(tmp_path / "out")(TOKENS).logits, expected)


def test_one_source_can_be_converted_many_times(tiny_folder: Folder, tmp_path: Path) -> None:
    source = open_source(tiny_folder("qwen3", tied=True))
    for number in range(2):
        convert(source, tmp_path / f"a{number}", "compressed-tensors", keep=["embed_tokens"])
        convert(source, tmp_path / f"b{number}", "compressed-tensors")


def test_the_gguf_says_what_llama_cpp_needs(tiny_folder: Folder, tmp_path: Path) -> None:
    out = convert(open_source(tiny_folder("llama")), tmp_path, "gguf")
    fields = gguf.GGUFReader(out).fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["general.file_type"].contents() == 39
    assert fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert fields["tokenizer.chat_template"].contents() == TEMPLATE
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == 300
    assert tokens[256:260] == ["th", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def test_folders_are_complete(tiny_folder: Folder, tmp_path: Path) -> None:
    out = convert(open_source(tiny_folder("qwen3")), tmp_path, "compressed-tensors")
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
            "tokenizer_config.json"} <= names  # fmt: skip
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.chat_template == TEMPLATE
    config = json.loads((out / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert config["quantization_config"]["ignore"] == ["lm_head"]


def test_large_models_are_sharded_with_an_index(tiny_folder: Folder, tmp_path: Path) -> None:
    source = open_source(tiny_folder("qwen3"))
    outgoing = outgoing_from_source(source, "compressed-tensors")
    export(outgoing, tmp_path / "many", "compressed-tensors", shard_bytes=20_000)
    export(
        outgoing_from_source(source, "compressed-tensors"), tmp_path / "one", "compressed-tensors"
    )
    shards = sorted(p.name for p in (tmp_path / "many").glob("*.safetensors"))
    assert len(shards) > 3
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == shards
    assert matrices(open_tensors(tmp_path / "many")[1]) == matrices(
        open_tensors(tmp_path / "one")[1]
    )
    with torch.no_grad():
        many, one = plain_transformers(tmp_path / "many"), plain_transformers(tmp_path / "one")
        assert torch.equal(many(TOKENS).logits, one(TOKENS).logits)


def test_an_existing_output_is_refused_before_any_work(tiny_folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "compressed-tensors"
    out.mkdir()
    with pytest.raises(OutputError, match="exists"):
        convert(open_source(tiny_folder("qwen3")), tmp_path, "compressed-tensors")
    assert list(out.iterdir()) == []


def test_overwriting_never_takes_a_folder_of_something_else(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"x")
    outgoing = outgoing_from_source(open_source(tiny_folder("qwen3")), "modelopt")
    with pytest.raises(OutputError, match="something else"):
        export(outgoing, tmp_path / "photos", "modelopt", overwrite=True)
    assert (tmp_path / "photos" / "cat.png").exists()


def test_a_disk_that_is_too_small_is_refused_before_any_work(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(OutputError, match="the disk has 1000 B left"):
        convert(open_source(tiny_folder("qwen3")), tmp_path, "compressed-tensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", TARGETS)
def test_a_failure_halfway_leaves_nothing(tiny_folder: Folder, tmp_path: Path, target: str) -> None:
    source = open_source(tiny_folder("qwen3"))
    seen: list[str] = []

    def fail(name: str) -> None:
        seen.append(name)
        if len(seen) == 5:
            raise OSError(28, "No space left on device")

    out = path_for(tmp_path, target)
    with pytest.raises(OutputError, match="disk is full"):
        export(outgoing_from_source(source, target), out, target, done=fail)
    assert list(tmp_path.iterdir()) == []


def test_gguf_needs_columns_in_multiples_of_64(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    from tests.conftest import TINY, byte_tokenizer

    config = AutoConfig.for_model("qwen3", **(TINY | {"intermediate_size": 80}))
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "odd")
    byte_tokenizer().save_pretrained(tmp_path / "odd")
    source = open_source(tmp_path / "odd")
    with pytest.raises(FormatError, match="runs of 64"):
        convert(source, tmp_path, "gguf")
    assert {p.name for p in tmp_path.iterdir()} == {"odd"}
    convert(source, tmp_path, "compressed-tensors")  # 80 is a multiple of 16


def test_a_two_level_weight_does_not_fit_the_single_level_dat(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    source = open_source(convert(open_source(tiny_folder("qwen3")), tmp_path, "dat2"))
    with pytest.raises(FormatError, match="no place for it"):
        convert(source, tmp_path, "dat")


def test_gemma_is_not_written_as_gguf(tiny_folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be written as GGUF"):
        convert(open_source(tiny_folder("gemma3_text")), tmp_path, "gguf")


def test_an_unknown_target_is_refused(tiny_folder: Folder) -> None:
    with pytest.raises(ConfigError, match="onnx"):
        outgoing_from_source(open_source(tiny_folder("qwen3")), "onnx")


def test_the_input_is_never_touched(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tiny_folder("qwen3")
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}
    for target in TARGETS:
        convert(open_source(folder), tmp_path, target)
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()} == before


def test_the_same_input_gives_the_same_bytes(tiny_folder: Folder, tmp_path: Path) -> None:
    for target in TARGETS:
        one = convert(open_source(tiny_folder("llama")), tmp_path / "1", target)
        two = convert(open_source(tiny_folder("llama")), tmp_path / "2", target)
        files = [""] if one.is_file() else [p.name for p in one.iterdir()]
        assert all((one / f).read_bytes() == (two / f).read_bytes() for f in files)


def test_a_model_in_memory_is_left_as_it_was(tiny_folder: Folder, tmp_path: Path) -> None:
    model = tiny_model("qwen3", tied=True)
    quantize_(model, keep=["embed_tokens"])
    source = open_source(tiny_folder("qwen3", tied=True))
    outgoing_from_model(model, "compressed-tensors", source.write_tokenizer, "tiny")
    assert model.config.tie_word_embeddings is True
