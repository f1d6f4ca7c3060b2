"""http part of the balancer."""
