"""A ResNet-32 that normalises as `nn.DataParallel` on four GPUs does, in one process: a backbone plug-in.

DataParallel divides a batch of 128 images into four parts of 32. BatchNorm normalises each part by the part's own
statistics, and only the first part updates the running statistics. Many published runs were made so.

    foster run cifar100-b0-inc10 method=wa backbone=resnet32_split4 engine.compile=on engine.capture=on \\
        --plugin docs/examples/split_batchnorm.py
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

import foster
from foster.networks import build_backbone

NUM_PARTS = 4


class SplitBatchNorm(nn.BatchNorm2d):
    """In training, BatchNorm of each quarter of the batch by its own statistics."""

    def forward(self, maps: Tensor) -> Tensor:
        if not self.training:
            return super().forward(maps)
        first, *others = maps.chunk(NUM_PARTS)
        scale, eps = (self.weight, self.bias), self.eps
        rest = [functional.batch_norm(part, None, None, *scale, training=True, eps=eps) for part in others]
        return torch.cat([super().forward(first), *rest])


@foster.register_backbone("resnet32_split4")
def resnet32_split4() -> nn.Module:
    backbone = build_backbone("resnet32")
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = SplitBatchNorm
    return backbone
