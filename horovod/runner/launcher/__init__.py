"""The launcher's part in a running job: supervision of agents and ranks, output, signals."""
