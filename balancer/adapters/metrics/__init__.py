"""Metrics as Prometheus reads them."""
