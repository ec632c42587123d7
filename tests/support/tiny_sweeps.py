"""Runs that take a second: four classes of synthetic images in two tasks, on the CPU."""

TINY = [
    "dataset=synthetic",
    "synthetic.num_classes=4",
    "synthetic.train_per_class=6",
    "synthetic.test_per_class=4",
    "synthetic.image_size=8",
    "memory_total=8",
    "device=cpu",
]
