"""What the rendezvous server and its clients agree on; neither has to load the other for it."""

PROTOCOL = 1
PURPOSE = "rendezvous"  # what a connection to the server is authenticated for
CROWDED_SECONDS = 0.05  # of patience per rank of a host: they all start at once, perhaps on few processors
READY = "ready"  # the stage that ends a scope: every rank is connected
