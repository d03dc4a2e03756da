"""Names tell the cells of a sweep apart by what differs between them."""

from desa_ray.experiment.run_names import apart

HASHES = ["aaaa0000", "bbbb0000", "cccc0000"]


def test_settings_that_differ_are_named():
    settings = [
        {"channels.sparse.k1": 0.9, "channels.sparse.b": 0.4, "draws": 1, "fusion.k": 20},
        {"channels.sparse.k1": 1.2, "channels.sparse.b": 0.4, "draws": 1, "fusion.k": 20},
        {"channels.sparse.k1": 1.2, "channels.sparse.b": 0.4, "draws": 3, "fusion.k": 20},
    ]
    assert apart(settings, HASHES) == ["draws 1/k1 0.9", "draws 1/k1 1.2", "draws 3/k1 1.2"]


def test_what_no_short_setting_tells_apart_has_a_hash():
    """A long text is no name; a setting that one cell lacks is a dash."""
    long = [{"prompt": "a" * 200}, {"prompt": "b" * 200}]
    assert apart(long, HASHES[:2]) == HASHES[:2]
    assert apart([{"a": 1}, {}], HASHES[:2]) == ["a 1", "a -"]
