"""Images on their way to training: sources, the scenario that cuts them into tasks, augmentation, feeds, memory."""
