"""What the balancer does, step by step, through ports; no driver is known here."""
