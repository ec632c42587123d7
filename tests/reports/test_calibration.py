import pytest

from foster.reports.archive import open_archives
from foster.reports.calibration import calibration_figure


def test_the_curve_compares_confidence_with_how_often_it_is_right(bundle):
    (archive,) = open_archives([bundle])
    (axes,) = calibration_figure(archive).axes
    _, curve = axes.lines
    labels, predicted = archive.predictions()
    confidence = archive.probabilities.max(1)
    inside = [(confidence >= low / 10) & (confidence < (low + 1) / 10 + (low == 9)) for low in range(10)]
    expected = [100 * float((labels == predicted)[mask].mean()) for mask in inside if mask.any()]
    assert list(curve.get_ydata()) == pytest.approx(expected)
    assert axes.get_xlim() == axes.get_ylim() == (0, 100)
