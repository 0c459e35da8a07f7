"""What the rendezvous server and its clients agree on; neither has to load the other for it."""

PROTOCOL = 2
PURPOSE = "rendezvous"  # what a connection to the server is authenticated for
# Of patience per rank of a host: they all start at once, perhaps on few processors
CROWDED_SECONDS = 0.05
# The stages of a scope, in their order; a world may have no use for HOST
MEET = "meet"  # where each rank is to be reached
HOST = "host"  # the ranks of each host share memory, or what prevents it
READY = "ready"  # ends the scope: every rank is connected
STAGES = (MEET, HOST, READY)
