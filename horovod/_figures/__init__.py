"""What is known of a job, in figures: the model, Prometheus' text, and the door that it is asked for at.

For the launcher and for rank 0 of a job without it; imports nothing of the rest.
"""
