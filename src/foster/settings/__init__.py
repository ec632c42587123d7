"""What a run or a learner is told: frozen, checked settings. No torch, so that `foster --help` is instant."""
