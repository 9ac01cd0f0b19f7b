"""Strategies over tables of many attributes: marginals, residual bases, p-Identity products, levels and rounds."""
