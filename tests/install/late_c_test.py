#!/usr/bin/env python3
"""A program that was not linked with cordma opens the C library late, and uses it: Python, by ctypes.

    late_c_test.py LIBCORDMA_C LIBSOFTVERBS
"""

import ctypes
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import cases  # noqa: E402

FOREVER = ctypes.c_int64(-1)
OK, BAD_HANDLE, WRONG_THREAD = 0, 64, 65
THREAD = 1
REMOTE_READ_WRITE = 3
NAME_BYTES = 20


class Options(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("device", ctypes.c_char_p), ("progress", ctypes.c_int),
                ("loop", ctypes.c_int), ("pins", ctypes.c_int), ("cpu", ctypes.c_uint),
                ("receives", ctypes.c_uint), ("receive_bytes", ctypes.c_uint32),
                ("lend_bytes_max", ctypes.c_uint64), ("insecure", ctypes.c_int),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p), ("log_level", ctypes.c_int)]


class Message(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64), ("immediate", ctypes.c_uint32), ("has_immediate", ctypes.c_int),
                ("is_write", ctypes.c_int)]


RECEIVED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Message), ctypes.c_void_p)


class Cordma:
    """The library, whose calls fail with its text."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.cordma_error_text.restype = ctypes.c_char_p

    def __getattr__(self, name):
        def call(*arguments):
            status = getattr(self.library, "cordma_" + name)(*arguments)
            assert status == OK, (name, status, self.library.cordma_error_text().decode())
        return call

    def context(self, loop=0):
        options = Options(ctypes.sizeof(Options), b"soft0", 0, loop)
        made = ctypes.c_void_p()
        self.init(ctypes.byref(options), ctypes.byref(made))
        return made

    def memory(self, context, access=0):
        made, address = ctypes.c_void_p(), ctypes.c_void_p()
        self.allocate(context, ctypes.c_size_t(4096), access, ctypes.byref(made), ctypes.byref(address))
        return made, (ctypes.c_char * 4096).from_address(address.value)


class Pair:
    """A client of this thread's, and a server with a thread of its own."""

    def __init__(self, cordma):
        self.server, self.client = cordma.context(THREAD), cordma.context()
        listener, self.there, self.here = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        cordma.listen(self.server, None, ctypes.byref(listener))
        address = ctypes.create_string_buffer(64)
        cordma.address(listener, address, ctypes.c_size_t(64))
        cordma.connect(self.client, address, FOREVER, ctypes.byref(self.here))
        cordma.accept(listener, FOREVER, ctypes.byref(self.there))

    def release(self, cordma):
        for context in (self.client, self.server):
            cordma.release(context, FOREVER)


def check_transfers(cordma):
    pair = Pair(cordma)
    mine, text = cordma.memory(pair.client)
    theirs, their_text = cordma.memory(pair.server, REMOTE_READ_WRITE)
    name, remote = ctypes.create_string_buffer(NAME_BYTES), ctypes.c_void_p()
    cordma.export(theirs, name)
    getattr(cordma, "import")(pair.here, name, ctypes.byref(remote))
    text[:7] = b"written"
    cordma.write(pair.here, mine, ctypes.c_size_t(0), ctypes.c_size_t(7), remote, ctypes.c_uint64(8), FOREVER)
    assert their_text[8:15] == b"written", their_text[:16]
    cordma.send(pair.here, mine, ctypes.c_size_t(0), ctypes.c_size_t(7), FOREVER)
    into, about = ctypes.create_string_buffer(64), Message()
    cordma.receive(pair.there, into, ctypes.c_size_t(64), ctypes.byref(about), FOREVER)
    assert (into.value, about.bytes) == (b"written", 7), (into.value, about.bytes)
    pair.release(cordma)


def check_callbacks(cordma):
    pair, came, texts = Pair(cordma), threading.Event(), []

    def on_message(_connection, data, about, _user):
        texts.append(ctypes.string_at(data, about.contents.bytes))
        came.set()

    callback = RECEIVED(on_message)
    cordma.set_receive_callback(pair.there, callback, None, None)
    mine, text = cordma.memory(pair.client)
    text[:5] = b"hello"
    cordma.send(pair.here, mine, ctypes.c_size_t(0), ctypes.c_size_t(5), FOREVER)
    assert came.wait(60), "no message came"
    assert texts == [b"hello"], texts
    pair.release(cordma)


def check_misuse(cordma):
    context = cordma.context()
    statuses = [cordma.library.cordma_free(None)]
    other = threading.Thread(target=lambda: statuses.append(
        cordma.library.cordma_listen(context, None, ctypes.byref(ctypes.c_void_p()))))
    other.start()
    other.join()
    cordma.release(context, FOREVER)
    statuses.append(cordma.library.cordma_release(context, FOREVER))
    assert statuses == [BAD_HANDLE, WRONG_THREAD, BAD_HANDLE], statuses


def main():
    # Ahead of libibverbs, as a program has it that is linked with softverbs.
    ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
    all_cases = cases.Cases("late c")
    with all_cases.case("Python opens the C library late"):
        cordma = Cordma(sys.argv[1])
    with all_cases.case("Python transfers by blocking calls"):
        check_transfers(cordma)
    with all_cases.case("Python is called back by the library's thread"):
        check_callbacks(cordma)
    with all_cases.case("Python's misuse gives a status"):
        check_misuse(cordma)
    return all_cases.status()


if __name__ == "__main__":
    sys.exit(main())
