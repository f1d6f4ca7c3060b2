"""metrics part of the balancer."""
