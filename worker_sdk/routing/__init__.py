"""Which destination to send to, and to which of its endpoints; nothing is here yet."""
