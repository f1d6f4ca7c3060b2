"""What the balancer decides, as functions of (snapshot, policies, memory, now); pure."""
