"""What happens inside `Learner.learn`: read the photos, plan, train, check, remember. `lesson` tells the story."""
