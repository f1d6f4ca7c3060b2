"""postgres part of the balancer."""
