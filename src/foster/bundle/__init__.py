"""Bundles: the folder that is shipped. Only `folder` needs torch."""
