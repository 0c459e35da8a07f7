"""Names that schedulers and tools import from here; what does the work is elsewhere in horovod.runner."""
