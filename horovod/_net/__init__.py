"""Authenticated sockets: the bottom layer, shared by the bootstrap and the runner.

Imports no other part.
"""
