"""How the ranks of a job find each other if their launcher runs no rendezvous server."""
