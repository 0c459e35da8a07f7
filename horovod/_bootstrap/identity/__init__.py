"""Who this process is. Each launcher has a file of its own, with a class that recognises it."""

from horovod._bootstrap.identity.base import DiscoveryHints, Identity, Launcher, Place
from horovod._bootstrap.identity.detection import detect, environment, hide_key

__all__ = ["DiscoveryHints", "Identity", "Launcher", "Place", "detect", "environment", "hide_key"]
