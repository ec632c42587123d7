"""Average incremental accuracies that the literature reports, to stand beside ours."""

from dataclasses import dataclass

from foster.studies.study import load_study


@dataclass(frozen=True)
class Published:
    """Averages in percent; `boosted` is read off a published figure, hence about right only."""

    average: float
    boosted: float | None = None
    rerun: float | None = None
    """What the authors' repository gives for its own code, beside the paper's value."""
    is_in_paper: bool = True
    """False where only the authors' repository reports it."""


# FOSTER: the compressed network, from Table 1 and, for b0-inc20 and b50-inc10, from the authors' repository, which
# repeats the paper's figures. Boosted: the mean of the points of "B4" in the paper's Figure 3.
_FOSTER = {
    "cifar100-b0-inc20": Published(72.54, boosted=74.1, rerun=73.88),
    "cifar100-b0-inc10": Published(72.90, boosted=74.1, rerun=73.10),
    "cifar100-b0-inc5": Published(70.65, rerun=70.59),
    "cifar100-b50-inc10": Published(70.10, boosted=71.2, rerun=71.08),
    "cifar100-b50-inc5": Published(67.95, rerun=68.61),
    "cifar100-b50-inc2": Published(63.83, rerun=64.95),
    "cifar100-b50-inc1": Published(59.96, is_in_paper=False),
}

PUBLISHED: dict[tuple[str, str], Published] = {
    (scenario, variant.name): Published(average)
    for variant in load_study("table-1").variants  # among them its row "Bound", which the paper does not define
    for scenario, average in variant.paper.items()
} | {(scenario, "foster"): published for scenario, published in _FOSTER.items()}
"""By (scenario, method)."""

ACIL = {"cifar100-b50-inc2": 71.05}
"""Zhuang et al., NeurIPS 2022, as their later paper on DS-AL reports it: ridge regression on a frozen ResNet-32, in the
natural class order."""
