"""Fails while it is imported."""

raise ValueError("not today")
