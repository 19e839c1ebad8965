"""Processes that run collectives, one a rank, and the orders that a driver gives to all of them.

bench/collectives/orders.hpp is the other side.
"""

import contextlib
import pathlib
import selectors
import socket
import time

COMING_SECONDS, LOOK_SECONDS, WORK_SECONDS = 60, 0.1, 120


class Ended(Exception):
    """A rank that ended, or that took too long."""


def free_port():
    with contextlib.closing(socket.socket()) as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def read(connections):
    """Returns what each of them says next, in any order. One that ends stops the waiting for all,
    because others may wait for its rank."""
    until, said = time.monotonic() + WORK_SECONDS, []
    with selectors.DefaultSelector() as silent:
        for connection in connections:
            silent.register(connection, selectors.EVENT_READ)
        while silent.get_map():
            ready = silent.select(until - time.monotonic())
            if not ready:
                raise Ended
            for key, _ in ready:
                said.append(key.fileobj.recv(64).decode())
                if not said[-1]:
                    raise Ended
                silent.unregister(key.fileobj)
    return said


class Ranks:
    """The processes of one library in one layout. A context: they end with it."""

    def __init__(self, project, library, size):
        self.library, self.size = library, size
        self.lost_at = ""  # The order that they did not do; empty while they work.
        self._project = project
        self._left, self._children, self._connections = contextlib.ExitStack(), [], []

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self._stop()
        self._left.close()

    def _stop(self):
        """Ends ranks that may wait for each other."""
        for child in self._children:
            child.terminate()

    def _lose(self, order):
        self.lost_at = order
        self._stop()

    def start(self, folder):
        """Starts the processes, which meet in a new folder in `folder`, and waits for all."""
        folder = pathlib.Path(folder, self.library.key)
        folder.mkdir()
        orders = str(folder / "orders")
        variables = {**self.library.variables, "COLLECTIVES_ORDERS": orders,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        listener = self._left.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(orders)
        listener.listen(self.size)
        listener.settimeout(LOOK_SECONDS)
        for command, more in self.library.commands(self.size, str(folder)):
            self._children.append(self._left.enter_context(
                self._project.beside(command, **variables, **more)))
        try:
            for _ in range(self.size):
                connection = self._accept(listener)
                # Closed before the processes are waited for: they end then.
                self._connections.append(self._left.enter_context(connection))
            read(self._connections)
        except (OSError, Ended):
            self._lose("start")

    def _accept(self, listener):
        """Waits for the next rank, as long as all processes are there."""
        until = time.monotonic() + COMING_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if any(child.poll() is not None for child in self._children):
                break
        raise Ended

    def order(self, operation, size_bytes, count):
        """Returns the seconds of one operation on the slowest rank; None: they do no such one."""
        if self.lost_at:
            return None
        order = f"{operation} {size_bytes} {count}"
        try:
            for connection in self._connections:
                connection.send(order.encode())
            answers = read(self._connections)
        except (OSError, Ended):
            self._lose(order)
            return None
        return None if "-" in answers else max(map(float, answers)) / count
