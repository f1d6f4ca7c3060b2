"""app part of the balancer."""
