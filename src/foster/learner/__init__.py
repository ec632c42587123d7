"""The practitioner's object, and what happens inside one `learn`: read the photos, plan, train, check, remember."""
