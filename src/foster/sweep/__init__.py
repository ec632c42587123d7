"""Sweeps: a grid of runs, their folders, their processes, and what is printed about them."""
