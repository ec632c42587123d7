"""Augmentation of whole batches on the device, every image with its own choices."""
