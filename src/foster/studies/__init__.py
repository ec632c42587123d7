"""The paper's ablations and sensitivity studies: a study is a file with a grid of runs, claims, and what to draw."""
