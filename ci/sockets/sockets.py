# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Connections made and waited for in every way that Python has: `serve KINDS PORT COUNT`, `call KINDS HOST PORT COUNT BYTES`.
Kinds are separated by commas, come one after the other, and each has the next port.

A client says what its socket is called, sends bytes in pieces, and ends its direction; the server looks whether it knows the
client by that name, and sends the bytes back. Any difference is an error of the one who finds it.
"""

import array
import asyncio
import errno
import fcntl
import os
import random
import select
import signal
import socket
import struct
import sys
import termios
import threading

PIECE = 16384


def listen(port):
    return socket.create_server(("", port), backlog=64)


def named(first, name):
    """Takes the client's name off the first bytes, which may be fewer; None until it is whole."""
    line, separator, rest = first.partition(b"\n")
    if not separator:
        return None
    host, port = name
    assert line.decode() == f"{host} {port}", f"{line} is not {name}"
    return rest


def echo(connection, name):
    assert connection.getpeername() == name, f"{connection.getpeername()} is not {name}"
    first = b""
    while (rest := named(first, name)) is None:
        first += connection.recv(PIECE)
    connection.sendall(rest)
    while data := connection.recv(PIECE):
        connection.sendall(data)
    connection.close()


def threads(listener, count):
    running = []
    for _ in range(count):
        thread = threading.Thread(target=echo, args=listener.accept())
        thread.start()
        running.append(thread)
    for thread in running:
        thread.join()


def fork(listener, count):
    """What was accepted is a child's."""
    for _ in range(count):
        connection, name = listener.accept()
        if os.fork() == 0:
            listener.close()
            echo(connection, name)
            os._exit(0)
        connection.close()
    for _ in range(count):
        assert os.wait()[1] == 0


def prefork(listener, count):
    """Children accept."""
    for _ in range(2):
        if os.fork() == 0:
            for _ in range(count // 2):
                echo(*listener.accept())
            os._exit(0)
    for _ in range(2):
        assert os.wait()[1] == 0


def orphan(port, count):
    """The process that listens ends, and its child accepts until Berth carries a connection."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        listener = listen(port)
        if os.fork() == 0:
            while True:
                connection, name = listener.accept()
                echo(connection, name)
                log = open(os.environ["BERTH_SOCKETS_LOG"]).read()
                if ": berth " in log:
                    os.write(writing, b"x")
                    os._exit(0)
        os._exit(0)
    os.wait()
    os.close(writing)
    assert os.read(reading, 1) == b"x", "the child has failed"


LOOPS = ("select", "poll", "epoll", "edge")


class Loop:
    """Many connections in one thread, none of which blocks."""

    def __init__(self, listener, count, kind):
        self.listener, self.left, self.kind = listener, count, kind
        self.connections = {}
        listener.setblocking(False)

    def run(self):
        if self.kind in ("epoll", "edge"):
            self.epoll = select.epoll()
            self.epoll.register(self.listener, select.EPOLLIN)
        while self.left or self.connections:
            for fd in self.ready():
                if fd == self.listener.fileno():
                    self.accept()
                else:
                    self.go_on(fd)

    def ready(self):
        writers = [fd for fd, (_, _, first, out, _) in self.connections.items() if out]
        readers = [self.listener.fileno(), *self.connections]
        if self.kind == "select":
            found = select.select(readers, writers, [])
            return set(found[0] + found[1])
        if self.kind == "poll":
            poll = select.poll()
            for fd in readers:
                poll.register(fd, select.POLLIN | (select.POLLOUT if fd in writers else 0))
            return {fd for fd, _ in poll.poll()}
        return {fd for fd, _ in self.epoll.poll()}

    def accept(self):
        try:
            connection, name = self.listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        self.left -= 1
        self.connections[connection.fileno()] = [connection, name, b"", b"", False]
        if self.kind in ("epoll", "edge"):
            edge = select.EPOLLET if self.kind == "edge" else 0
            self.epoll.register(connection, select.EPOLLIN | select.EPOLLOUT * (self.kind == "edge") | edge)

    def go_on(self, fd):
        """Until both directions would wait, as an edge wants it."""
        state = self.connections[fd]
        connection = state[0]
        moved = True
        while moved:
            moved = False
            try:
                if not state[4] and len(state[3]) < 4 * PIECE:
                    data = connection.recv(PIECE)
                    moved = True
                    if data and state[2] is not None:
                        state[2] += data
                        data = named(state[2], state[1])
                        state[2] = None if data is not None else state[2]
                    elif not data:
                        state[4] = True
                    state[3] += data or b""
            except BlockingIOError:
                pass
            try:
                if state[3]:
                    state[3] = state[3][connection.send(state[3]):]
                    moved = True
            except BlockingIOError:
                pass
        if self.kind == "epoll":
            self.epoll.modify(fd, (not state[4]) * select.EPOLLIN | bool(state[3]) * select.EPOLLOUT)
        if state[4] and not state[3]:
            del self.connections[fd]
            connection.close()


def serve_asyncio(listener, count):
    async def main():
        left, done = count, asyncio.Event()

        async def handle(reader, writer):
            nonlocal left
            name = writer.get_extra_info("peername")
            writer.write(named(await reader.readline(), name))
            while data := await reader.read(PIECE):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            left -= 1
            if left == 0:
                done.set()

        async with await asyncio.start_server(handle, sock=listener):
            await done.wait()

    asyncio.run(main())


def broken(listener, count):
    """Each client's end is a reset."""
    for _ in range(count):
        connection, _ = listener.accept()
        try:
            while connection.recv(PIECE):
                pass
            raise AssertionError("the end came in order")
        except ConnectionResetError:
            pass
        assert connection.recv(1) == b""
        try:
            connection.send(b"x")
            raise AssertionError("what is sent is taken")
        except BrokenPipeError:
            pass


class Memory:
    """What idle connections take, beside the first one: at most 16 KiB each, of the process, and pinned."""

    def __init__(self):
        self.before = self.resident()

    def resident(self):
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def check(self, count):
        counters = open("/sys/kernel/debug/berth/berth0/counters").read()
        pinned = int(counters.partition("\nD_PINNED ")[2].split()[0])
        resident = self.resident() - self.before
        print(f"{count} connections: {resident} bytes more of memory, {pinned} pinned")
        assert pinned <= count << 14 and resident <= count << 14


def idle(listener, count):
    listener.listen(count)
    connections = [listener.accept()[0]]
    memory = Memory()
    connections += [listener.accept()[0] for _ in range(count - 1)]
    memory.check(count)
    for connection in connections:
        connection.sendall(connection.recv(1))
        assert connection.recv(1) == b""


SERVERS = {
    "threads": threads,
    "fork": fork,
    "prefork": prefork,
    "asyncio": serve_asyncio,
    "broken": broken,
    "idle": idle,
    **{kind: lambda listener, count, kind=kind: Loop(listener, count, kind).run() for kind in LOOPS},
}


def serve(kinds, port, count):
    if kinds == ["orphan"]:
        return orphan(port, count)
    # Who calls the first one may call the others as well. The last one says that all listen.
    listeners = [listen(port + n) for n in reversed(range(len(kinds)))]
    for kind, listener in zip(kinds, reversed(listeners)):
        SERVERS[kind](listener, count)
        listener.close()


def pieces(data):
    while data:
        n = random.choice([1, 100, 4096, 50000])
        yield data[:n]
        data = data[n:]


def speak(connection, size):
    data = random.randbytes(size)
    got = []

    def listen():
        while some := connection.recv(PIECE):
            got.append(some)

    reader = threading.Thread(target=listen)
    reader.start()
    host, port = connection.getsockname()
    connection.sendall(f"{host} {port}\n".encode())
    for piece in pieces(data):
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)
    reader.join()
    assert b"".join(got) == data, f"{sum(map(len, got))} bytes are not the {size} that were sent"
    connection.close()


def call_plainly(host, port, count, size):
    connections = [socket.create_connection((host, port)) for _ in range(count)]
    for connection in connections:
        assert connection.getpeername() == (host, port)
    speakers = [threading.Thread(target=speak, args=(connection, size)) for connection in connections]
    failed = []
    threading.excepthook = lambda args: (failed.append(args), sys.excepthook(*args[:3]))
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join()
    assert not failed


def call_in_turn(host, port, count, size):
    """Until the server has gone."""
    while True:
        try:
            speak(socket.create_connection((host, port)), size)
        except ConnectionRefusedError:
            return


def call_oddly(host, port, count, size):
    """What else a connected socket has, and one that does not block until it is connected."""
    for n in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        result = connection.connect_ex((host, port))
        assert result in (0, errno.EINPROGRESS), result
        assert select.select([], [connection], [])[1] == [connection]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection.family == socket.AF_INET and connection.type == socket.SOCK_STREAM
        own = connection.getsockname()
        connection.sendall(f"{own[0]} {own[1]}\n".encode())
        copy = connection.dup()
        connection.close()
        copy.sendmsg([b"ab", b"cd"])
        while len(copy.recv(16, socket.MSG_PEEK)) < 4:
            pass
        waiting = array.array("i", [0])
        fcntl.ioctl(copy, termios.FIONREAD, waiting)
        assert waiting[0] == 4, waiting
        assert copy.recv(16) == b"abcd"
        # In a child, and of a file.
        if os.fork() == 0:
            with open(sys.argv[0], "rb") as file:
                copy.sendfile(file)
            os._exit(0)
        assert os.wait()[1] == 0
        copy.shutdown(socket.SHUT_WR)
        got = b""
        while data := copy.recv(PIECE):
            got += data
        assert got == open(sys.argv[0], "rb").read()
        copy.close()


def call_idly(host, port, count, size):
    connections = [socket.create_connection((host, port))]
    memory = Memory()
    connections += [socket.create_connection((host, port)) for _ in range(count - 1)]
    memory.check(count)
    for connection in connections:
        connection.sendall(b"x")
        assert connection.recv(2) == b"x"
        connection.close()


def call_urgently(host, port, count, size):
    for _ in range(count):
        connection = socket.create_connection((host, port))
        try:
            connection.send(b"!", socket.MSG_OOB)
            raise AssertionError("urgent data are taken")
        except OSError as error:
            assert error.errno == errno.EOPNOTSUPP, error
        speak(connection, size)


def call_asyncio(host, port, count, size):
    async def one():
        reader, writer = await asyncio.open_connection(host, port)
        own = writer.get_extra_info("sockname")
        data = random.randbytes(size)
        writer.write(f"{own[0]} {own[1]}\n".encode())

        async def send():
            for piece in pieces(data):
                writer.write(piece)
                await writer.drain()
            writer.write_eof()

        sent = asyncio.create_task(send())
        assert await reader.read() == data
        await sent
        writer.close()
        await writer.wait_closed()

    async def main():
        await asyncio.gather(*(one() for _ in range(count)))

    asyncio.run(main())


def call_and_break(host, port, count, size):
    """Half of the connections end by SO_LINGER, the others because their process is killed."""
    for n in range(count):
        child = os.fork()
        if child == 0:
            connection = socket.create_connection((host, port))
            connection.sendall(random.randbytes(size))
            if n % 2 == 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)


CALLS = {
    "plainly": call_plainly,
    "in-turn": call_in_turn,
    "oddly": call_oddly,
    "urgently": call_urgently,
    "idly": call_idly,
    "asyncio": call_asyncio,
    "and-break": call_and_break,
}

what, kinds, *rest = sys.argv[1:]
if what == "serve":
    serve(kinds.split(","), *map(int, rest))
else:
    host, port, count, size = rest[0], *map(int, rest[1:])
    for n, kind in enumerate(kinds.split(",")):
        print(kind, flush=True)
        CALLS[kind](host, port + n, count, size)
