"""HTTP: shares for workers, destinations for operators, health and metrics."""
