"""Sleep that ends early when a signal arrives.

Python writes the number of every signal it catches into a socket; the loop waits on the other end.
Ctrl-C is for the command, which the terminal tells directly: the guard ignores it and stays until
the command has left.
"""

import select
import signal
import socket

PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


class Bell:
    """Takes the process's signals over, for good. Made once, in the main thread."""

    def __init__(self) -> None:
        self._heard, self._rung = socket.socketpair()
        for end in (self._heard, self._rung):
            end.setblocking(False)
        signal.set_wakeup_fd(self._rung.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *PASSED_ON):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup: it is to be ignored
                signal.signal(number, _caught)
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        self._poll = select.poll()
        self._poll.register(self._heard, select.POLLIN)

    def wait(self, seconds: float) -> bytes:
        """Sleep; the numbers of the signals that came, if any."""
        return self._heard.recv(256) if self._poll.poll(seconds * 1000) else b""


def _caught(number: int, frame: object) -> None:
    """Being caught is enough: the number is in the socket."""
