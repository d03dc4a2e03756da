"""The closed-form window of rank-based rules (method.md section 6.13)."""

from fractions import Fraction

from desa_ray.core.rules.registry import Rule


def rule_window(rule: Rule, k: int) -> int | None:
    """The smallest L at which no document outside every list's first L can be in the top k.

    The first k documents of some list have at least what its rank k gives alone; a document behind
    L in every list has at most what rank L + 1 of all lists gives together. Found by bisection, as
    the latter falls with L. It needs a list of the largest such share with k documents.

    Returns:
        None where a document of one list alone may have nothing (log_isr), and for rules of scores.
    """
    share, lists = rule.kind.share, len(rule.weights)
    if share is None:
        return None
    least: list[Fraction] = []
    for place, weight in enumerate(rule.weights):
        own = [share(weight, rule.kappa, k) if n == place else None for n in range(lists)]
        least.append(rule.combined(own))
    best = max(least)
    if not best:
        return None

    def behind(window: int) -> bool:
        return rule.combined([share(w, rule.kappa, window + 1) for w in rule.weights]) < best

    low, high = k, 2 * k
    while not behind(high):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if behind(middle) else (middle + 1, high)
    return low
