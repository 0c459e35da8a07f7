"""How the processes of a job find each other: who am I, rendezvous, authenticated connections."""
