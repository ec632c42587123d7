"""Predictions by the head or by the nearest class mean, and the metrics computed from them."""
