"""Records to histograms: contribution bounding, counting on workers, and counts of categories and of persons."""
