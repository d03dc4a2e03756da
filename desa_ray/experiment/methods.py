"""What a method is made of: the operators it names, the prompts it needs, and everything that is
wrong with its definition.

Methods are YAML files that anybody can add, so each mistake is found before anything runs and says
what there is.
"""

from collections.abc import Mapping
from fractions import Fraction

from desa_ray.config import ChannelConfig, GeneratorConfig, MethodConfig, PromptConfig
from desa_ray.core.feedback import FEEDBACK
from desa_ray.core.fusion.registry import FUSIONS
from desa_ray.core.fusion.weights import TOP_SCORES
from desa_ray.core.operators import DenseOperator, SparseOperator
from desa_ray.engines.prompts import Prompt, load_prompt, prompt_from, prompt_names
from desa_ray.errors import DesaError, choices, listed
from desa_ray.plugins import shadowed
from desa_ray.stages.plugged import OPERATORS, operator_names, operator_of, rule_names, rule_of
from desa_ray.stages.rule_fusion import SCORE_RULES

ORIGINAL = MethodConfig(
    name="original",
    channels=(
        ChannelConfig(name="dense", kind="dense", operator="original"),
        ChannelConfig(name="sparse", kind="sparse", operator="original"),
    ),
)
SCORE = "score"  # the fusion of QuDAR's audit, which sums scores instead of ranks
BY_SCORES = (SCORE, *SCORE_RULES)  # fusions that read the top scores of every channel
REFERENCES_PROMPT = "references"  # the prompt whose texts `n_refs` counts
RECORDED = "recorded"  # the kind of generator that reads texts: they are decoded already
UNBOUNDED = ("geometric",)  # a factor that rounds to 0 has no logarithm


def has_reference(method: MethodConfig) -> bool:
    """Whether the results of a method are compared with those of the original query's two lists."""
    kinds = {channel.kind for channel in method.channels}
    return kinds == {"dense", "sparse"} and method.channels != ORIGINAL.channels


def operator(channel: ChannelConfig) -> DenseOperator | SparseOperator:
    return operator_of(channel.kind, channel.operator)


def needs_text(channel: ChannelConfig) -> bool:
    """Whether a channel is built from generated text."""
    return not {"query", *FEEDBACK}.issuperset(operator(channel).texts)


def expands(channel: ChannelConfig) -> bool:
    """Whether a channel's query is more than the original one."""
    return set(operator(channel).texts) != {"query"}


def prompt_of(method: MethodConfig, channel: ChannelConfig) -> str | None:
    """The prompt whose texts a channel is built from; None where it needs none."""
    return (channel.prompt or method.prompt) if needs_text(channel) else None


def prompts(method: MethodConfig) -> list[str]:
    """The prompts a well-formed method needs, in the order of its channels."""
    named = [prompt_of(method, channel) for channel in method.channels]
    return list(dict.fromkeys(prompt for prompt in named if prompt))


def texts_needed(method: MethodConfig) -> bool:
    """Whether any channel of known operators is built from generated text."""
    known = (c for c in method.channels if c.operator in operator_names(c.kind))
    return any(map(needs_text, known))


def own_prompts(method: MethodConfig, given: PromptConfig | None) -> dict[str, Prompt]:
    """What `prompt=` replaces among the prompts that a method names: of its own, and of one of
    the same name.
    """
    if given is None:
        return {}
    prompt = prompt_from(given)
    slots = {method.prompt, given.name} & set(prompts(method))
    return dict.fromkeys(sorted(filter(None, slots)), prompt)


def given_prompt(name: str, generator: GeneratorConfig, own: Mapping[str, Prompt]) -> Prompt:
    """The prompt whose texts are taken where a method names this one."""
    return own.get(name) or load_prompt(generator.map.get(name, name))


def texts_used(
    prompt: str, generator: GeneratorConfig, n_refs: int, own: Mapping[str, Prompt] | None = None
) -> int:
    """How many of a prompt's texts a channel uses: n_refs of the references, all texts of any other
    prompt; never more than a prompt that replaces it makes.

    Args:
        own: prompts with which settings replace others (`own_prompts`).
    """
    count = given_prompt(prompt, generator, own or {}).text_count
    if prompt == REFERENCES_PROMPT:
        return min(n_refs, count)
    return count if prompt in (own or {}) else min(load_prompt(prompt).text_count, count)


def options(channel: ChannelConfig) -> dict[str, Fraction]:
    """Every option of the channel's operator, with defaults filled in."""
    declared = operator(channel).options
    defaults = {
        name: option.default for name, option in declared.items() if option.default is not None
    }
    return {**defaults, **channel.options}


def generator_label(
    method: MethodConfig, generator: GeneratorConfig, given: PromptConfig | None = None
) -> str | None:
    """What records call the text's origin: the generator, and which texts replace which; None
    without text. A prompt whose words are not the platform's own is followed by its hash.
    """
    needed = prompts(method)
    if not needed:
        return None
    own = own_prompts(method, given)
    stand_ins = []
    for prompt in needed:
        if prompt in own:
            stand_ins.append(f"{prompt}<-{_named(own[prompt])}")
        elif prompt in generator.map:
            stand_ins.append(f"{prompt}<-{generator.map[prompt]}")
    as_ever = [f"{prompt}<-{prompt}" for prompt in needed]
    stand_ins = [one for one in stand_ins if one not in as_ever]
    return f"{generator.name}:{','.join(stand_ins)}" if stand_ins else generator.name


def _named(prompt: Prompt) -> str:
    known = prompt.name in prompt_names() and load_prompt(prompt.name).hash == prompt.hash
    return prompt.name if known else f"{prompt.name}@{prompt.hash[:8]}"


def check_generator_map(generator: GeneratorConfig) -> list[DesaError]:
    """Prompts in `generator.map` that do not exist, or replace one and are themselves replaced."""
    problems = []
    for prompt in dict.fromkeys([*generator.map, *generator.map.values()]):
        if prompt not in prompt_names():
            known = f"known: {listed(prompt_names(), 20)}"
            problems.append(
                DesaError(f"unknown prompt {prompt!r}", where="generator.map", hint=known)
            )
    for prompt, stand_in in generator.map.items():
        if stand_in in generator.map:
            what = f"{stand_in!r} replaces {prompt!r} and is itself replaced"
            problems.append(
                DesaError(what, where="generator.map", hint="name the prompt whose texts exist")
            )
    return problems


def check_method(
    method: MethodConfig,
    generator: GeneratorConfig,
    n_refs: int,
    given: PromptConfig | None = None,
) -> list[DesaError]:
    """Everything wrong with a method as written; choices are listed from what there is."""
    try:
        return _method_problems(method, generator, n_refs, given)
    except DesaError as error:  # of a plug-in that cannot be loaded
        return [error]


def _method_problems(
    method: MethodConfig, generator: GeneratorConfig, n_refs: int, given: PromptConfig | None
) -> list[DesaError]:
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
    rules = [*rule_names(), *BY_SCORES]
    if method.fusion not in rules:
        problem(f"unknown fusion {method.fusion!r}", f"known: {listed(rules, 20)}")
    elif method.fusion not in (*FUSIONS, *BY_SCORES):
        rule_of(method.fusion)
    if clash := shadowed("fusion", method.fusion, FUSIONS):
        problems.append(clash)
    if method.fusion in BY_SCORES and not (method.prefix and method.prefix <= TOP_SCORES):
        reads = f"fusion {method.fusion!r} reads at most {TOP_SCORES} scores"
        what = f"prefix is {method.prefix}, but {reads}"
        problem(what, f"add prefix: {TOP_SCORES}")
    if method.weighting == "confidence" and any(channel.weight != 1 for channel in method.channels):
        problem(
            "weights are given, but weighting is confidence",
            "leave the weights out, or use weighting: fixed",
        )
    named = [method.prompt]
    named += [channel.prompt for channel in method.channels]
    written = {prompt for prompt in named if prompt} - ({given.name} if given else set())
    for prompt in sorted(written - set(prompt_names())):
        hint = f"known: {listed(prompt_names(), 20)}; one of --config-dir is chosen by prompt="
        problem(f"unknown prompt {prompt!r}", f"{hint}{prompt}")
    for channel in method.channels:
        place = f"{where}, channel {channel.name}"
        for what, hint in _channel_problems(method, channel):
            problem(what, hint, place)
    if not problems:
        problems += _text_problems(method, generator, n_refs, given)
    return problems


def _text_problems(
    method: MethodConfig, generator: GeneratorConfig, n_refs: int, given: PromptConfig | None
) -> list[DesaError]:
    """What is wrong with the texts that a method, well-formed otherwise, takes of its prompts."""
    problems: list[DesaError] = []
    where = f"method {method.name}"
    needed, own = prompts(method), own_prompts(method, given)
    if method.prompt and method.prompt not in needed:
        what = f"no channel uses the prompt {method.prompt!r}"
        problems.append(DesaError(what, where=where, hint="leave it out"))
    if given and needed and not own:
        what = f"{given.name} replaces no prompt of {method.name}, whose channels name their own"
        hint = f"leave it out, or name {given.name} in your own method"
        problems.append(DesaError(what, where="prompt", hint=hint))
    for slot in own:
        if slot in generator.map:
            what = f"{slot!r} is replaced here and by prompt={own[slot].name}"
            problems.append(DesaError(what, where="generator.map", hint="leave out one of them"))
    source = own.get(REFERENCES_PROMPT)
    asked = (source or load_prompt(REFERENCES_PROMPT)).text_count
    if REFERENCES_PROMPT in needed and n_refs > asked:
        by = f"the prompt {source.name}" if source else "the prompt"
        what = f"n_refs is {n_refs}, but {by} asks for {asked} references"
        hint = "use a smaller n_refs, or a prompt that asks for more (prompt=)"
        problems.append(DesaError(what, where="n_refs", hint=hint))
    if problems or check_generator_map(generator):
        return problems
    for channel in method.channels:
        prompt = prompt_of(method, channel)
        if prompt is None or not operator(channel).one_text:
            continue
        count = texts_used(prompt, generator, n_refs, own)
        if count != 1:
            single = [name for name in prompt_names() if load_prompt(name).text_count == 1]
            used = own[prompt].name if prompt in own else prompt
            what = (
                f"operator {channel.operator!r} takes one text, but the prompt {used} gives {count}"
            )
            place = f"{where}, channel {channel.name}"
            problems.append(DesaError(what, where=place, hint=f"use one of {listed(single, 20)}"))
    return problems


def _channel_problems(method: MethodConfig, channel: ChannelConfig) -> list[tuple[str, str]]:
    """(what, hint) of everything wrong with one channel."""
    found: list[tuple[str, str]] = []
    if channel.weight <= 0:
        found.append(
            (
                f"weight {channel.weight} is not positive",
                "leave the channel out, or give it a weight above 0",
            )
        )
    if clash := shadowed("operators", channel.operator, OPERATORS[channel.kind]):
        raise clash
    known = operator_names(channel.kind)
    if channel.operator not in known:
        what = f"unknown {channel.kind} operator {channel.operator!r}"
        return [*found, (what, choices(channel.operator, known))]
    scored = method.fusion in BY_SCORES or method.weighting == "confidence"
    if scored and channel.operator in UNBOUNDED:
        what = f"scores of operator {channel.operator!r} may be minus infinity"
        found.append((what, "fuse its ranks with fixed weights (fusion: rrf, weighting: fixed)"))
    declared = operator(channel).options
    for name, value in channel.options.items():
        if name not in declared:
            takes = f"its options: {listed(declared, 20)}" if declared else "it has none"
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
    return found
