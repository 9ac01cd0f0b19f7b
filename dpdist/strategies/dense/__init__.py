"""Optimisers over dense grams: the solvers of COA, the adaptive mechanism and the minimax strategy."""
