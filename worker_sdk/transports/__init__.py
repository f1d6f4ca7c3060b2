"""Drivers by which reports leave and shares come in; each is loaded only when it is used.

`base` names the two ports. A driver knows its own service and nothing of the others.
"""
