"""A plan as a table: a row a task, the totals, and what is not known."""

import io
from dataclasses import replace

from rich.console import Console

from foster.experiment.plan import Plan, make_plan
from foster.settings.experiment import load_settings


def shown(plan: Plan) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(plan.table())
    return file.getvalue()


def test_a_plan_has_a_row_a_task_and_its_totals():
    plan = make_plan(load_settings("digits", ["device=cpu", "base_classes=4", "increment=3"]))
    text = shown(replace(plan, time=None))
    assert "digits-b4-inc3: method foster, backbone" in text
    rows = [line.split() for line in text.splitlines() if line.split()[1:2] and line.split()[1].startswith("+")]
    assert [row[:3] for row in rows] == [["1", "+4", "4"], ["2", "+3", "7"], ["3", "+3", "10"]]
    assert "boost" in text
    assert all(fact in text for fact in (f"{plan.total_epochs:,}", f"{plan.total_steps:,}", " 200 ", "37.5 KiB"))
    assert "estimated time: not known" in text
    assert "images: from the mean" in text, "there are 178 to 183 images of a digit"
    assert "images: the mean" not in shown(make_plan(load_settings("cifar100-b0-inc20")))
    assert "photos:" not in text
