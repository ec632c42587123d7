"""WA: the rows of new classes are brought to the length of old ones."""

import pytest
import torch
from distilling_course import (
    course_of,
    new_method,
    task_of,
)

from foster.methods.wa import WeightAlignment
from foster.settings.methods import WaSettings


def test_alignment_gives_new_rows_the_mean_norm_of_old_ones_and_changes_nothing_else() -> None:
    course = course_of("wa")
    for learned in course.named("learn"):
        task, trained = learned.task, learned.after
        aligned = course.network_after_task[task.index]
        norms = aligned["head.weight"].norm(dim=1)
        unaligned_norms = trained["head.weight"].norm(dim=1)
        torch.testing.assert_close(norms[task.num_known :].mean(), norms[: task.num_known].mean())
        torch.testing.assert_close(norms[: task.num_known], unaligned_norms[: task.num_known])
        ratios = aligned["head.weight"][task.num_known :] / trained["head.weight"][task.num_known :]
        torch.testing.assert_close(ratios, ratios.mean().expand_as(ratios))
        assert abs(ratios.mean().item() - 1) > 0.01
        assert all(torch.equal(aligned[key], trained[key]) for key in trained if key != "head.weight")


def test_wa_can_weigh_its_terms_by_the_share_of_known_classes() -> None:
    method = new_method("wa")
    method.settings = WaSettings(weighting="share")
    assert isinstance(method, WeightAlignment)
    assert method.loss_weights(task_of(method, 1)) == pytest.approx((3 / 7, 4 / 7))
    assert method.loss_weights(task_of(method, 2)) == pytest.approx((3 / 10, 7 / 10))
