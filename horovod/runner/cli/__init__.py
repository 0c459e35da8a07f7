"""The command line of horovodrun: flags, config file, and what they ask for."""
