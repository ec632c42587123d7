"""Experiments: build the parts from the settings; train, evaluate and save every task in one folder."""
