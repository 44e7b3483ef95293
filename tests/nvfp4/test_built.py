"""Compiling kernels on the user's machine."""

import subprocess
from pathlib import Path

import pytest
import torch

from fourge.nvfp4 import built
from fourge.nvfp4.compiled import has_cpp_compiler

pytestmark = pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not has_cpp_compiler(),
    reason="needs AVX2 and a compiler",
)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "sums" / "native.cpp"
    path.parent.mkdir()
    path.write_text('#include "native_one.hpp"\nextern "C" int two() { return one() + one(); }')
    path.with_name("native_one.hpp").write_text("inline int one() { return 1; }")
    return path


def test_a_library_is_compiled_once_and_kept_in_the_user_s_cache(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = built.built(source)
    assert path.parent == tmp_path / "cache" / "fourge" / "kernels"
    assert path.name.startswith("sums-")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("compiled again"))
    assert built.built(source) == path
    kernels = built.library(source)
    assert kernels is not None
    assert kernels.two() == 2


def test_a_changed_part_is_compiled_again(source: Path) -> None:
    before = built.built(source)
    source.with_name("native_one.hpp").write_text("inline int one() { return 3; }")
    assert built.built(source) != before
    kernels = built.library(source)
    assert kernels is not None
    assert kernels.two() == 6


def test_source_that_does_not_compile_is_no_library_and_one_line_says_so(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.write_text("this is not C++")
    assert built.library(source) is None
    assert len(caplog.records) == 1
    assert "takes several times longer" in caplog.text


def test_tracers_have_no_memory_and_small_work_has_one_thread() -> None:
    assert built.has_memory(torch.zeros(3))
    assert not built.has_memory(torch.zeros(3, device="meta"))
    assert not built.has_memory(torch.nn.Parameter(torch.zeros(3)))
    assert built.threads_for(100) == 1
    assert built.threads_for(1 << 20) == torch.get_num_threads()
