"""What is measured of the records of a cell, one file a quantity, and what is made of sums of amounts."""
