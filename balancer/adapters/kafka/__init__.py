"""kafka part of the balancer."""
