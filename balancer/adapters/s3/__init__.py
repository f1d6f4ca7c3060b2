"""S3 and what speaks like it: documents, pointers, layout."""
