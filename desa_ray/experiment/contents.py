"""Hashes of the collections and recordings that configurations read."""

from collections.abc import Sequence

from desa_ray.config import RunConfig
from desa_ray.data.load import fingerprint
from desa_ray.experiment.methods import RECORDED, prompts
from desa_ray.experiment.places import home
from desa_ray.experiment.text_source import recording_of, source_of


def content_hashes(configs: Sequence[RunConfig]) -> list[str]:
    """One hash per collection and recording that the configurations read, each once, sorted.

    Raises:
        DesaError: a source is missing or cannot be read.
    """
    found: dict[str, str] = {}
    for config in configs:
        if repr(config.dataset) not in found:
            found[repr(config.dataset)] = fingerprint(config.dataset, data_home=home() / "data")
        if config.generator.kind == RECORDED:
            for slot in prompts(config.method):
                prompt = source_of(config, slot)
                about = repr((config.dataset, config.generator, prompt.name))
                if about not in found:
                    found[about] = recording_of(config, prompt, home())[1]
    return sorted(set(found.values()))
