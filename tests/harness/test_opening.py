from pathlib import Path

import pytest

from fourge.config.experiment import Experiment
from fourge.core.errors import ConfigError, OutputError
from fourge.core.events import FILE, EventLog
from fourge.harness.opening import EXPERIMENT_FILE, begin, id_of, refuse_foreign, require_same
from fourge.harness.training import Stop
from fourge.harness.work import Work
from tests.harness.experiment_samples import plan_of


def work_of(plan: Experiment) -> Work:
    return Work(plan, EventLog(plan.out / FILE, id_of(plan)), Stop(), lambda *told: None)


def test_it_begins_where_there_is_nothing_else(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, tmp_path)
    refuse_foreign(plan)
    plan.out.mkdir()
    (plan.out / "guard.jsonl").touch()
    refuse_foreign(plan)
    (plan.out / "thesis.txt").touch()
    with pytest.raises(OutputError, match=r"thesis\.txt is there"):
        refuse_foreign(plan)
    begin(work_of(plan), ["fourge"])
    refuse_foreign(plan)


def test_it_goes_on_under_its_id_and_with_its_settings(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, tmp_path)
    require_same(work_of(plan))
    begin(work_of(plan), ["fourge", "experiment"])
    assert id_of(plan) == id_of(plan)
    require_same(work_of(plan))
    assert Experiment.from_yaml((plan.out / EXPERIMENT_FILE).read_text()) == plan
    other = plan_of(tmp_path, tmp_path, train={"steps": 5})
    with pytest.raises(ConfigError, match=r"train\.steps: 4 -> 5"):
        require_same(work_of(other))


def test_attempts_that_were_not_made_yet_may_change(tmp_path: Path) -> None:
    work = work_of(plan_of(tmp_path, tmp_path, attempts=[[], ["optim.lr=1e-4"]]))
    begin(work, [])
    work.log.write("attempt", name="01", settings=[])
    more = [[], ["optim.lr=1e-6"], ["optim.lr=1e-7"]]
    require_same(work_of(plan_of(tmp_path, tmp_path, attempts=more)))
    require_same(work_of(plan_of(tmp_path, tmp_path, attempts=[[]])))
    with pytest.raises(ConfigError, match=r"attempts\.0"):
        require_same(work_of(plan_of(tmp_path, tmp_path, attempts=[["optim.lr=1e-6"]])))
