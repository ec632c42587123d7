"""`python -m foster` is the command `foster`."""

from foster.cli import main

if __name__ == "__main__":
    main()
