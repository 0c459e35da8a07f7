"""Timelines of all ranks: merged into one file that viewers open, and explained in words."""
