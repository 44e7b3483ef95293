import json

import pytest
from click.testing import CliRunner

from fourge import doctor as library
from fourge.cli.doctor import doctor


@pytest.mark.parametrize(("state", "status"), [("ok", 0), ("note", 0), ("fail", 1)])
def test_the_status_follows_the_findings(
    monkeypatch: pytest.MonkeyPatch, state: library.State, status: int
) -> None:
    monkeypatch.setattr(library, "examine", lambda: iter([library.Finding("x", state, "text")]))
    result = CliRunner().invoke(doctor, [])
    assert result.exit_code == status
    assert "x: text" in result.stdout
    as_json = CliRunner().invoke(doctor, ["--json"])
    assert json.loads(as_json.stdout) == [{"subject": "x", "state": state, "text": "text"}]
