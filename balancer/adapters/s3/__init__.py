"""s3 part of the balancer."""
