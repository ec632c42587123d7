"""Photos: where they lie, how they are decoded, and how they become images of one size."""
