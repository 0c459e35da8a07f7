"""What a running job shows of itself: a page, its data, and metrics for Prometheus."""
