"""Repeats a Ctrl-C that Python would discard.

A Ctrl-C becomes a KeyboardInterrupt in whatever the main thread runs at that moment. If that is a
finalizer or the callback of a weak reference, Python reports the exception as one that cannot be
raised, and continues: the interrupt is gone.
"""

import _thread
import signal
import threading
import time

AGAIN_S = 0.02  # by then the finalizer has ended


def interrupt_again() -> None:
    """Interrupt the main thread once more, a moment later.

    For `sys.unraisablehook`, which may run in the middle of anything: it takes no lock.
    """
    _thread.start_new_thread(_interrupt, ())


def _interrupt() -> None:
    time.sleep(AGAIN_S)
    main_thread = threading.main_thread().ident
    if main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGINT)
