"""Many runs: the grid, their folders, the slots they run in, and the table that shows them."""
