"""adapters part of the balancer."""
