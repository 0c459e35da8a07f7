"""What the rendezvous server and its clients agree on; neither has to load the other for it."""

PROTOCOL = 2
PURPOSE = "rendezvous"  # what a connection to the server is authenticated for
# Of patience per rank of a host: they all start at once, perhaps on few processors
CROWDED_SECONDS = 0.05
READY = "ready"  # the stage that ends a scope: every rank is connected
