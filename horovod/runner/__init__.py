"""The launcher: ``horovodrun`` and the processes that it starts."""
