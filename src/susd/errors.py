"""Errors whose message is written for the person at the keyboard."""


class UserError(ValueError):
    """Bad input: the message names the thing, its value and what is allowed. The command line exits with 2."""
