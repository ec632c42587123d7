"""Studies: the paper's tables, ablations and sensitivity studies. A study is a TOML file with runs, claims and a
figure."""
