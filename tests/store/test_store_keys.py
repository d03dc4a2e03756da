"""Keys: what decides a result decides the digest, and nothing else does."""

import hashlib
import pickle
from collections import OrderedDict
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from desa_ray.errors import DesaError
from desa_ray.store.keys import Key

INPUT = "ab" * 32


def key(**changes) -> Key:
    fields = {
        "stage": "fused",
        "version": 1,
        "params": {"kappa": "60", "k": 20},
        "inputs": {"dense": INPUT},
    }
    return Key(**{**fields, **changes})


def test_digest_is_the_sha256_of_the_canonical_json():
    text = (
        '{"inputs":{"dense":"'
        + INPUT
        + '"},"params":{"k":20,"kappa":"60"},"stage":"fused","version":1}'
    )
    assert key().canonical() == text
    assert key().digest == hashlib.sha256(text.encode()).hexdigest()
    assert key().short == key().digest[:12]


def test_key_order_of_params_does_not_matter():
    assert key(params={"a": {"x": 1, "y": 2}, "b": 3}) == key(
        params={"b": 3, "a": {"y": 2, "x": 1}}
    )


def test_mapping_and_sequence_types_do_not_matter():
    plain = key(params={"a": {"x": [1, 2]}})
    assert key(params=OrderedDict(a=MappingProxyType({"x": (1, 2)}))) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "ranked"},
        {"version": 2},
        {"params": {"kappa": "60", "k": 21}},
        {"inputs": {"sparse": INPUT}},
    ],
)
def test_every_field_changes_the_digest(change):
    assert key(**change) != key()


def test_numbers_of_different_type_are_different_keys():
    assert len({key(params={"x": value}) for value in (1, 1.0, True, "1", None)}) == 5


def test_negative_zero_is_zero():
    assert key(params={"x": -0.0}) == key(params={"x": 0.0})


def test_later_changes_of_the_callers_values_do_not_move_the_key():
    params = {"a": [1]}
    made = key(params=params)
    params["a"].append(2)
    assert made.params == {"a": [1]}
    with pytest.raises(FrozenInstanceError):
        made.version = 3  # pyright: ignore


def test_key_survives_pickling_and_its_own_document():
    assert pickle.loads(pickle.dumps(key())) == key()
    assert Key(**key().document()) == key()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "not a stable value"),
        (float("inf"), "not a stable value"),
        ({1, 2}, "sorted list"),
        (frozenset(), "sorted list"),
        (b"x", "SHA-256"),
        (Fraction(1, 4), '"1/4"'),
        (Path("data"), "hash of the contents"),
        (object(), "plain numbers"),
        (np.float64(0.5), "plain numbers"),
        (np.arange(2), "plain numbers"),
        ("\ud800", "lone surrogate"),
        ({1: "x"}, "string names"),
    ],
)
def test_unstable_values_are_refused_with_their_place(value, words):
    """Unstable values are refused with their place and the hint."""
    with pytest.raises(DesaError) as error:
        key(params={"channels": [{"weight": 1}, {"weight": value}]})
    assert "key of stage fused: params.channels[1].weight" in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "../x"},
        {"stage": ""},
        {"stage": "A"},
        {"version": 0},
        {"version": True},
        {"inputs": {"a": "short"}},
        {"inputs": {"a": INPUT.upper()}},
    ],
)
def test_malformed_fields_are_refused(change):
    with pytest.raises(DesaError):
        key(**change)
