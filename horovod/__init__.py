"""Distributed training: the same script on many processes and machines."""

__version__ = "1.0.0.dev0"
