from itertools import pairwise

from foster.reports.panel_drawing import spaced


def test_labels_keep_their_distance_and_stay_near_their_curves():
    def places(*wanted: float) -> list[float]:
        return spaced(wanted, [5] * len(wanted), bottom=0, top=100)

    assert places(90, 50, 10) == [90, 50, 10]
    # Three in a heap share their mean, 61.
    assert places(62, 61, 60) == [66, 61, 56]
    crowded = places(99, 99, 98, 1, 0)
    assert crowded[0] <= 97.5
    assert crowded[-1] >= 2.5
    assert all(upper - lower >= 5 - 1e-9 for upper, lower in pairwise(crowded))


def test_a_label_of_several_lines_has_as_much_room_as_it_needs():
    sizes = [5, 25, 5, 15]
    middles = spaced([60, 60, 60, 60], sizes, bottom=0, top=100)
    edges = [(middle + size / 2, middle - size / 2) for middle, size in zip(middles, sizes, strict=True)]
    assert all(upper[1] >= lower[0] - 1e-9 for upper, lower in pairwise(edges))
    assert edges[0][0] - edges[-1][1] == sum(sizes), "no room is lost between them"
    assert spaced([100, 99], [30, 10], bottom=0, top=100) == [85, 65], "all of it stays below the top"
