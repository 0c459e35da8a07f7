"""Elastic jobs: hosts and ranks come and go, training goes on."""
