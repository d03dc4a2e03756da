"""What is wrong with a configuration as such: everything that can be known without reading any
file.
"""

from desa_ray.config import RunConfig
from desa_ray.core.evaluation import parse_measures
from desa_ray.errors import DesaError, Problems
from desa_ray.experiment.methods import check_generator_map, check_method
from desa_ray.stages.lazy_fusion import check_lazy

MEASURES = ("nDCG@10", "R@20")


def measures_of(config: RunConfig) -> list[str]:
    """The names of all measures of a run."""
    return list(dict.fromkeys([*MEASURES, *config.evaluation.measures]))


def setting_problems(config: RunConfig) -> list[DesaError]:
    """Everything wrong with the settings as such: what can be known without any file."""
    problems = [
        *check_generator_map(config.generator),
        *check_method(config.method, config.generator, config.n_refs, config.prompt),
    ]
    if config.fusion.kappa <= -1:
        problems.append(
            DesaError(
                f"kappa is {config.fusion.kappa}", where="fusion.kappa", hint="use a value above -1"
            )
        )
    try:
        parse_measures(measures_of(config))
    except Problems as found:
        problems += found.problems
    except DesaError as found:
        problems.append(found)
    if config.ranking == "lazy" and not problems:
        problems += check_lazy(config, measures_of(config))
    return problems
