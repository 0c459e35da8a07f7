"""What is to be started where: hosts, ranks, environments and the command.

Mostly pure functions.
"""
