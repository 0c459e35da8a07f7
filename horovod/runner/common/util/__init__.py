"""Thin layers under customary names."""
