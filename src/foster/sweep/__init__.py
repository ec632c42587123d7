"""Sweeps: a grid of runs, their folders, their processes, and their output."""
