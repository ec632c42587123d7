"""What small classes leave of the memory goes to the others."""

from foster.learner.held_out import fair_quota, held_out_quota


def kept(total: int, trained: list[int], held_out: list[int], share: float) -> int:
    quota = fair_quota(total, trained, held_out, share)
    spared = held_out_quota(quota, share) or 0
    return sum(min(count, quota - spared) for count in trained) + sum(min(count, spared) for count in held_out)


def test_large_classes_take_what_small_ones_leave() -> None:
    assert fair_quota(100, [10, 10, 500], [0, 0, 0], 0.0) == 80
    assert kept(100, [10, 10, 500], [0, 0, 0], 0.0) == 100


def test_the_budget_is_never_exceeded_and_nearly_used() -> None:
    trained, held_out = [51] * 20 + [400] * 4, [9] * 20 + [60] * 4
    assert 1960 <= kept(2000, trained, held_out, 0.15) <= 2000


def test_equal_classes_share_it_equally() -> None:
    assert fair_quota(60, [100, 100, 100], [20, 20, 20], 0.1) == 20
    assert fair_quota(60, [5, 5], [1, 1], 0.1) == 60, "all of it fits"
