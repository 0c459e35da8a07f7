"""The functions that every framework's module is made from, with an adapter that only they know."""

from check_launch import Launch

LAUNCHES = [Launch("api", 2, ["checks_api.py"])]
