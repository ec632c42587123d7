"""The learner, and the steps of one `learn`: plan, read the photos, train or compute a head, measure, save."""
