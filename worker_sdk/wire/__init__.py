"""The contract between workers and balancer: messages, documents, share arithmetic, limits.

Pure and of the standard library alone. Import from the modules inside.
"""
