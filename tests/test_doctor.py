import pytest

from fourge import doctor
from fourge.core.errors import ConfigError
from fourge.memory.nvml import Device


@pytest.mark.model
def test_this_machine_is_well() -> None:
    findings = {f.subject: f for f in doctor.examine()}
    assert [f for f in findings.values() if f.state == "fail"] == []
    assert "bit for bit" in findings["NVFP4 kernels"].text
    assert "learned" in findings["one step"].text


def test_what_fails_is_a_finding_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[doctor.State, str]:
        raise RuntimeError("no driver")

    def missing() -> tuple[doctor.State, str]:
        raise ConfigError("It is not installed.", fix="install it")

    monkeypatch.setattr(doctor, "_ATTEMPTS", {"a": broken, "b": missing})
    findings = {f.subject: f for f in doctor.examine()}
    assert findings["a"].state == findings["b"].state == "fail"
    assert "no driver" in findings["a"].text
    assert "install it" in findings["b"].text


def test_a_kernel_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "fake_quantize", lambda weight: weight)
    findings = {f.subject: f for f in doctor.examine()}
    assert findings["NVFP4 kernels"].state == "fail"


def test_without_a_compiler_it_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "has_cpp_compiler", lambda: False)
    findings = {f.subject: f for f in doctor.examine()}
    assert findings["NVFP4 kernels"].state == "note"


def test_a_missing_package_is_a_failure() -> None:
    assert doctor._package("no-such-package").state == "fail"


def test_a_guard_that_does_not_stop_the_toy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "guard_argv", lambda command, options: ["true"])
    findings = {f.subject: f for f in doctor.examine()}
    assert findings["guard"].state == "fail"
    assert "was not stopped, status 0" in findings["guard"].text


def test_memory_its_limit_and_the_guard_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "devices", lambda: (Device("NVIDIA GB10", None, None),))
    findings = {f.subject: f for f in doctor.examine()}
    assert findings["memory"].text.startswith("one pool with the GPU; ")
    assert "a GPU can count on " in findings["memory"].text
    assert "less a floor of " in findings["limit"].text
    assert "was stopped" in findings["guard"].text
