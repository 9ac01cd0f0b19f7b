"""The plugins of this distribution: a folder a capability, each of which can be deleted (docs/plugins.md)."""
