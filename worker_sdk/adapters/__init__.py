"""Permits in the libraries that workers already use; a module each, named after its library.

Decides nothing. A module here needs its library (an extra of the same name) and is loaded by nobody
but the program that imports it.
"""
