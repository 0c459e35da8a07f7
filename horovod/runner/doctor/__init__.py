"""``horovodrun --doctor``: what of this machine, or of several, would make a job slow or fail."""
