"""The settings of runs and learners: frozen and checked. No torch here, so that `foster --help` is fast."""
