"""The worker's decisions without I/O: documents and time in, permits and reports out.

Pure and of the standard library alone. Import from the modules inside; `engine` composes them.
"""
