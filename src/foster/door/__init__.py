"""The researcher's door: runs, plans and results from Python, without the command's texts and signals."""
