"""One page from recorded results."""
