"""The demonstration: a limited destination, real worker processes, and a live account of both."""
