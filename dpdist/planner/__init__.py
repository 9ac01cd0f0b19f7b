"""What a release would do, before anything is charged: strategy, noise, predicted errors, memory and budgeted steps."""
