"""Drivers: each speaks to one kind of server, or one protocol, in the words of the ports."""
