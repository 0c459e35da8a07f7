"""Names that schedulers and tools import; the work is done elsewhere in horovod.runner."""
