"""Benchmarks of the collectives on the user's own machine: `python -m horovod.bench --help`."""
