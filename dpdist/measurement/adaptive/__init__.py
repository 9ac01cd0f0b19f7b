"""Measurements that are chosen by what was measured before: DAWA and adaptive rounds of tables."""
