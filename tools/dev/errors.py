"""Errors that end a command early. commands.py makes a message and an exit status of each."""


class Failure(Exception):
    """Something is missing or wrong: exit status 1."""


class UsageError(Exception):
    """The command line is wrong: exit status 2."""


class CommandFailed(Exception):
    """A command failed and has said why: its exit status is passed on."""

    def __init__(self, status):
        super().__init__(f"exit status {status}")
        self.status = status
