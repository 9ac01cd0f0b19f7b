"""Non-negative answers that agree with each other, fitted to what was measured."""
