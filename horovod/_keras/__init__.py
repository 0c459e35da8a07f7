"""What horovod.keras and horovod.tensorflow.keras have in common. Not for users."""
