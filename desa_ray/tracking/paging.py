"""All pages of a listing, with a limit in case the server never ends it."""

from collections.abc import Callable, Iterator
from typing import Any

from mlflow.store.entities.paged_list import PagedList

from desa_ray.errors import DesaError

PAGES = 10_000


def paged(page: Callable[[str | None], PagedList]) -> Iterator[Any]:
    """The items of every page, in order.

    Args:
        page: gives the page that a token leads to; None stands for the first.

    Raises:
        DesaError: the pages go in circles, or are too many.
    """
    token, seen = None, set[str]()
    while True:
        found = page(token)
        yield from found
        token = found.token
        if not token:
            return
        if token in seen or len(seen) >= PAGES:
            raise DesaError(
                "the tracking server's pages never end", hint="is this an MLflow server?"
            )
        seen.add(token)
