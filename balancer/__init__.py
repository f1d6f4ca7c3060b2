"""The balancer service: reads usage, plans shares, publishes documents."""
