"""The rendezvous: a server where the ranks of a job meet, and its clients."""
