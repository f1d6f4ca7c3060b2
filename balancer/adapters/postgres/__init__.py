"""PostgreSQL: the repository and its schema. Translates; decides nothing."""
