"""Vectors that are read by range, and the passes and transforms over them: in memory or in a store, by size alone.

Nothing here imports a store or an engine: what needs them asks a ``Workspace``.
"""
