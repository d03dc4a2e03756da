"""What a method is made of: the operators it names, the prompts it needs, and everything wrong with
it as written.

Methods are YAML files that anybody can add, so each mistake is found before anything runs and says
what there is.
"""

from collections.abc import Mapping
from fractions import Fraction

from desa_ray.config import ChannelConfig, GeneratorConfig, MethodConfig
from desa_ray.core.fusion.registry import FUSIONS
from desa_ray.core.fusion.weights import TOP_SCORES
from desa_ray.core.operators import DENSE_OPERATORS, SPARSE_OPERATORS, DenseOperator, SparseOperator
from desa_ray.engines.prompts import load_prompt, prompt_names
from desa_ray.errors import DesaError, choices, listed

ORIGINAL = MethodConfig(
    name="original",
    channels=(
        ChannelConfig(name="dense", kind="dense", operator="original"),
        ChannelConfig(name="sparse", kind="sparse", operator="original"),
    ),
)
OPERATORS: Mapping[str, Mapping[str, DenseOperator | SparseOperator]] = {
    "dense": DENSE_OPERATORS,
    "sparse": SPARSE_OPERATORS,
}
SCORE = "score"  # the fusion that sums scores instead of ranks
REFERENCES = "references"  # the prompt whose texts `n_refs` counts
UNBOUNDED = ("geometric",)  # a factor that rounds to 0 has no logarithm


def operator(channel: ChannelConfig) -> DenseOperator | SparseOperator:
    return OPERATORS[channel.kind][channel.operator]


def needs_text(channel: ChannelConfig) -> bool:
    """Whether a channel is built from generated text."""
    return set(operator(channel).texts) != {"query"}


def prompt_of(method: MethodConfig, channel: ChannelConfig) -> str | None:
    """The prompt whose texts a channel is built from; None where it needs none."""
    return (channel.prompt or method.prompt) if needs_text(channel) else None


def prompts(method: MethodConfig) -> list[str]:
    """The prompts a well-formed method needs, in the order of its channels."""
    named = [prompt_of(method, channel) for channel in method.channels]
    return list(dict.fromkeys(prompt for prompt in named if prompt))


def texts_used(prompt: str, generator: GeneratorConfig, n_refs: int) -> int:
    """How many texts a channel uses of a prompt: n_refs references, all of another prompt's, at
    most a stand-in's.
    """
    wanted = n_refs if prompt == REFERENCES else load_prompt(prompt).text_count
    return min(wanted, load_prompt(generator.map.get(prompt, prompt)).text_count)


def options(channel: ChannelConfig) -> dict[str, Fraction]:
    """Every option of the channel's operator, with defaults filled in."""
    declared = operator(channel).options
    defaults = {
        name: option.default for name, option in declared.items() if option.default is not None
    }
    return {**defaults, **channel.options}


def generator_label(method: MethodConfig, generator: GeneratorConfig) -> str | None:
    """What records call the text's origin: the generator, and which texts stand in for which; None
    without text.
    """
    needed = prompts(method)
    if not needed:
        return None
    stand_ins = [
        f"{prompt}<-{generator.map[prompt]}" for prompt in needed if prompt in generator.map
    ]
    return f"{generator.name}:{','.join(stand_ins)}" if stand_ins else generator.name


def check_generator_map(generator: GeneratorConfig) -> list[DesaError]:
    """Prompts in `generator.map` that do not exist, or stand in for one that is replaced itself."""
    problems = []
    for prompt in dict.fromkeys([*generator.map, *generator.map.values()]):
        if prompt not in prompt_names():
            known = f"known: {listed(prompt_names(), 20)}"
            problems.append(
                DesaError(f"unknown prompt {prompt!r}", where="generator.map", hint=known)
            )
    for prompt, stand_in in generator.map.items():
        if stand_in in generator.map:
            what = f"{stand_in!r} stands in for {prompt!r} and is replaced itself"
            problems.append(
                DesaError(what, where="generator.map", hint="name the prompt whose texts are there")
            )
    return problems


def check_method(method: MethodConfig, generator: GeneratorConfig, n_refs: int) -> list[DesaError]:
    """Everything wrong with a method as written; choices are listed from what there is."""
    problems: list[DesaError] = []
    where = f"method {method.name}"

    def problem(what: str, hint: str, place: str = where) -> None:
        problems.append(DesaError(what, where=place, hint=hint))

    names = [channel.name for channel in method.channels]
    if not names:
        problem("no channels", "list at least one")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        problem(
            f"two channels named {listed(repeated)}", f"rename one; there are: {listed(names, 20)}"
        )
    if method.fusion not in (*FUSIONS, SCORE):
        problem(f"unknown fusion {method.fusion!r}", f"known: {listed([*FUSIONS, SCORE], 20)}")
    if method.fusion == SCORE and not (method.prefix and method.prefix <= TOP_SCORES):
        what = f"prefix is {method.prefix}, but fusion 'score' reads at most {TOP_SCORES} scores"
        problem(what, f"add prefix: {TOP_SCORES}")
    if method.weighting == "confidence" and any(channel.weight != 1 for channel in method.channels):
        problem(
            "weights are written, but weighting is confidence",
            "drop the weights, or use weighting: fixed",
        )
    named = [method.prompt]
    named += [channel.prompt for channel in method.channels]
    written = {prompt for prompt in named if prompt}
    for prompt in sorted(written - set(prompt_names())):
        problem(f"unknown prompt {prompt!r}", f"known: {listed(prompt_names(), 20)}")
    for channel in method.channels:
        place = f"{where}, channel {channel.name}"
        for what, hint in _channel_problems(method, channel, generator, n_refs):
            problem(what, hint, place)
    if not problems:
        if method.prompt and method.prompt not in prompts(method):
            problem(f"no channel uses the prompt {method.prompt!r}", "leave it out")
        if REFERENCES in prompts(method) and n_refs > load_prompt(REFERENCES).text_count:
            what = (
                f"n_refs is {n_refs}, but the prompt asks for {load_prompt(REFERENCES).text_count}"
                " references"
            )
            problem(what, "use a smaller n_refs", "n_refs")
    return problems


def _channel_problems(
    method: MethodConfig, channel: ChannelConfig, generator: GeneratorConfig, n_refs: int
) -> list[tuple[str, str]]:
    """(what, hint) of everything wrong with one channel."""
    found: list[tuple[str, str]] = []
    if channel.weight <= 0:
        found.append(
            (f"weight {channel.weight} is not positive", "drop the channel or give it a weight > 0")
        )
    known = OPERATORS[channel.kind]
    if channel.operator not in known:
        what = f"unknown {channel.kind} operator {channel.operator!r}"
        return [*found, (what, choices(channel.operator, known))]
    scored = method.fusion == SCORE or method.weighting == "confidence"
    if scored and channel.operator in UNBOUNDED:
        what = f"scores of operator {channel.operator!r} may be minus infinity"
        found.append((what, "fuse its ranks with fixed weights (fusion: rrf, weighting: fixed)"))
    declared = operator(channel).options
    for name, value in channel.options.items():
        if name not in declared:
            takes = f"it takes: {listed(declared, 20)}" if declared else "it takes none"
            found.append((f"operator {channel.operator!r} has no option {name!r}", takes))
        elif reason := declared[name].problem(value):
            found.append(
                (
                    f"option {name} of operator {channel.operator!r} is {value}: {reason}",
                    "change it",
                )
            )
    for name, option in declared.items():
        if option.default is None and name not in channel.options:
            found.append(
                (
                    f"operator {channel.operator!r} needs the option {name!r}",
                    f"add options: {{{name}: ...}}",
                )
            )
    if not needs_text(channel):
        if channel.prompt:
            found.append(
                (
                    f"operator {channel.operator!r} uses no text, but the channel names a prompt",
                    "drop it",
                )
            )
        return found
    prompt = prompt_of(method, channel)
    if prompt is None:
        what = f"operator {channel.operator!r} needs generated text, but the method names no prompt"
        found.append((what, f"add prompt: one of {listed(prompt_names(), 20)}"))
    elif (
        prompt in prompt_names()
        and operator(channel).one_text
        and not check_generator_map(generator)
    ):
        count = texts_used(prompt, generator, n_refs)
        if count != 1:
            single = [name for name in prompt_names() if load_prompt(name).text_count == 1]
            what = (
                f"operator {channel.operator!r} takes one text, but the prompt {prompt} gives"
                f" {count}"
            )
            found.append((what, f"use one of {listed(single, 20)}"))
    return found
