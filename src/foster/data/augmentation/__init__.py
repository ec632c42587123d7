"""Augmentation of whole batches on the device, with random choices for each image."""
