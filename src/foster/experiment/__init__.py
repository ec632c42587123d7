"""A researcher's run: settings to parts, for every task and phase train, evaluate, remember and save, in one folder."""
