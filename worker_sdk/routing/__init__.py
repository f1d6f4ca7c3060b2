"""Which destination to send to, and to which of its endpoints: a place kept, with nothing in it yet."""
