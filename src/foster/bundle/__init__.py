"""Bundles: the folder that is shipped. torch is imported where tensors are read or written."""
