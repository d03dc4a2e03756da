"""The command line: one thin module per verb. The only package that may import everything.

It is installed as `desa_ray.jobs`; in a checkout the folder is next to `desa_ray`, like `conf`.
Its modules import one another relatively, which type checkers can follow without knowing that
mapping.
"""

VERBS = (
    "run",
    "plan",
    "submit",
    "generate",
    "verify",
    "report",
    "sync",
    "ui",
    "doctor",
    "store",
    "fuse",
    "compare",
    "depth",
    "audit",
    "tune",
)
