"""Command lines and YAML files that cannot be meant: one error that names the place and a hint, and
no litter.
"""

import fcntl
import re

import pytest

from desa_ray.config import ClusterConfig, FusionConfig, RunConfig
from desa_ray.config_check import checked
from desa_ray.errors import Problems, choices
from desa_ray.jobs.cli.claims import IN_USE
from desa_ray.jobs.cli.help import help_text
from desa_ray.jobs.cli.hydra_errors import ordered
from tests.desa_fixtures import dataset

# override -> what one error line must hold; `hint` parts are the words that a user would type next
OVERRIDES = {
    "null for a group": (
        ["tracking.enabled=false", "draws=2", "fusion=null"],
        ["fusion=null: is not a choice"],
    ),
    "digits of other scripts": (['fusion.kappa="\u0663"'], ["fusion.kappa: not a number"]),
    "neither word nor number": (
        ["dataset.size=0"],
        ["dataset.size: Input should be 'all'; or: Input should be greater than or equal to 1"],
    ),
    "blank before =": (
        ["fusion.k =3"],
        ["fusion.k =3", "leave out the spaces around =: fusion.k=3"],
    ),
    "no =": (["demo"], ["demo: ", "write KEY=VALUE"]),
    "brackets in a path": (
        ["dataset.path=x[1]y"],
        ["dataset.path=x[1]y", "'dataset.path=\"x[1]y\"'"],
    ),
    "quote in a value": (['dataset.name=a"b'], ['dataset.name=a"b', "quote the value"]),
    "open bracket": (
        ["evaluation.measures=[R@5"],
        ["evaluation.measures=[R@5", "close every bracket"],
    ),
    "mistyped setting": (
        ["fusion.kapa=3"],
        ["fusion.kapa: no such setting", "did you mean kappa?"],
    ),
    "mistyped group": (["metod=desa"], ["metod: no such setting", "did you mean method?"]),
    "mistyped group of a setting": (["fuson.kappa=3"], ["did you mean fusion?"]),
    "mistyped choice": (["method=desaa"], ["no method 'desaa'", "did you mean desa?"]),
    "setting that a file leaves out": (
        ["method.channels.0.weight=2"],
        ["write", "+method.channels.0.weight=2"],
    ),
    "list that a file leaves out": (["dataset.queries=[q1]"], ["'+dataset.queries=[q1]'"]),
    "+ for what is there": (["+fusion.kappa=3"], ["leave out the +: fusion.kappa=3"]),
    "experiment without +": (["experiment=demo"], ["write +experiment=demo"]),
    "unknown at the top": (
        ["+foo=3", "+fusio=3"],
        ["foo: no such setting", "fusio: no such setting", "did you mean fusion?"],
    ),
    "unknown in a group": (
        ["+fusion.kapa=3"],
        ["fusion.kapa: no such setting", "did you mean kappa?"],
    ),
    "unknown reference": (["fusion.kappa=${nope}"], ["fusion.kappa: ", "nope"]),
    "end of a setting": (["kappa=20"], ["kappa: no such setting", "did you mean fusion.kappa=20?"]),
    "mistyped end of a setting": (["kapa=20"], ["did you mean fusion.kappa=20?"]),
    "end of a setting, as a list": (
        ["measures=[AP]"],
        ["did you mean 'evaluation.measures=[AP]'?"],
    ),
    "end of several settings": (["name=x"], ["dataset.name=x or encoder.name=x"]),
    "setting of another group": (["encoder.kappa=2"], ["did you mean fusion.kappa=2?"]),
    "setting as a flag": (["--method", "desa"], ["--method: ", "written method=desa"]),
    "setting as a flag with =": (["--kappa=20"], ["--kappa: ", "written fusion.kappa=20"]),
    "unknown flag": (["--fast"], ["--fast: no such flag", "--help"]),
    "one measure": (
        ["evaluation.measures=nDCG@10"],
        ["evaluation.measures: should be a list", "evaluation.measures=[nDCG@10]"],
    ),
    "a number for a list": (["evaluation.measures=5"], ["evaluation.measures=[5]"]),
    "an interval": (["-m", "fusion.kappa=interval(1,5)"], ["fusion.kappa=interval(1,5)", "range("]),
    "an interval without -m": (["fusion.kappa=interval(1,5)"], ["range(", "objective="]),
    "values without -m": (["fusion.kappa=20,60"], ["fusion.kappa=20,60: has several", "add -m"]),
    "a range without -m": (["fusion.kappa=range(1,5)"], ["fusion.kappa=range(1,5)", "add -m"]),
    "a list of choices": (
        ["-m", "method=[original,desa]"],
        ["method: takes one choice", "write -m method=original,desa"],
    ),
    "another case": (["method=DESA"], ["method: no method 'DESA'", "did you mean desa?"]),
    "a word alone": (["desa"], ["desa: cannot be read: there is no =", "KEY=VALUE"]),
    "unknown information": (["--info", "nope"], ["--info: ", "'nope'", "defaults-tree"]),
    "unknown kind of configuration": (["--cfg=x"], ["--cfg: ", "'x'", "job"]),
    "a group left out": (["~generator"], ["generator: is missing"]),
    "blank in a name": (["dataset.name='my set'"], ["dataset.name: ", "letters, digits"]),
    "empty paths": (
        ["store.root=''", "dataset.path=''", "generator.folder=''"],
        ["store.root", "dataset.path", "leave it out"],
    ),
    "truth values": (
        ["draws=true", "fusion.k=false", "fusion.kappa=true"],
        ["draws: true and false", "fusion.k: true and false", "kappa: true and false"],
    ),
    "huge numbers": (
        ["fusion.k=1" + "0" * 30, "draws=1" + "0" * 20],
        ["fusion.k", "2147483647", "draws", "1000"],
    ),
    "huge exponents": (['fusion.kappa="1e99999999"'], ["fusion.kappa: needs more than 18 digits"]),
    "no finite numbers": (
        ["sparse.k1=inf", "cluster.memory_gb=nan"],
        ["sparse.k1", "cluster.memory_gb", "finite"],
    ),
    "store in memory": (["store.root=memory://x"], ["store.root: memory://x", "no worker sees it"]),
    "output folder": (
        ["hydra.run.dir=/dev/null/x"],
        ["/dev/null/x: cannot be created", "hydra.run.dir"],
    ),
    "deleted group": (["~encoder"], ["encoder"]),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_bad_override_is_one_error_with_its_hint(name, collection, refuse, tmp_path):
    overrides, words = OVERRIDES[name]
    given = {override.lstrip("+~").split("=")[0].strip() for override in overrides}
    common = [f"dataset.path={collection}"] if "dataset.path" not in given else []
    errors = refuse([], "run", "dataset=beir_folder", *common, "cluster=serial", *overrides)
    text = "\n".join(errors)
    for word in words:
        assert word.replace("write", "") in text
    assert "provider=" not in text
    assert "hydra.cc" not in text
    assert not (tmp_path / "outputs").exists()
    assert not (tmp_path / "home").exists()


SIZES = {
    "a heap that no machine has": (
        ["sparse.heap=99999999g"],
        ["sparse.heap: ", "99999999g", "this machine"],
    ),
    "a heap that Java cannot start with": (["sparse.heap=1k"], ["sparse.heap: ", "1k", "64m"]),
    "memory that no machine has": (
        ["cluster.memory_gb=99999"],
        ["cluster.memory_gb: 99999 GB", "this machine", "lower it"],
    ),
    "a cache that no machine has": (
        ["generator=smollm2", "generator.kv_cache_gb=99999"],
        ["generator.kv_cache_gb: 99999 GB", "this machine"],
    ),
    "threads that no machine has": (
        ["cluster=serial", "cluster.encoder_cpus=9999"],
        ["cluster.encoder_cpus: ", "9999", "this machine"],
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_no_machine_has_are_refused(name, collection, refuse):
    overrides, words = SIZES[name]
    where = ("dataset=beir_folder", f"dataset.path={collection}", "cluster=serial")
    refuse(words, "plan", *where, *overrides)


FILES = {
    "syntax": (b"name: mine\nchannels: [\n", ["mine.yaml:3: not YAML"]),
    "tab": (b"name: mine\n\tprompt: x\n", ["mine.yaml:2: not YAML"]),
    "not UTF-8": (b"name: m\xff\xfe\n", ["mine.yaml: not UTF-8: byte 0xff"]),
    "a list": (b"- a\n- b\n", ["method"]),
    "an object of Python": (
        b"!!python/object/apply:os.system ['touch made-by-yaml']\n",
        ["mine.yaml:1: not YAML"],
    ),
    "control characters": (b"name: a\x00b\n", ["mine.yaml"]),
    "deep nesting": (b"a: " + b"[" * 1500, ["mine.yaml"]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_of_the_users_own_is_named(name, collection, refuse, tmp_path):
    content, words = FILES[name]
    (tmp_path / "my" / "method").mkdir(parents=True)
    (tmp_path / "my" / "method" / "mine.yaml").write_bytes(content)
    common = ["dataset=beir_folder", f"dataset.path={collection}", "cluster=serial"]
    refuse(words, "run", *common, "--config-dir", "my", "method=mine")
    assert not (tmp_path / "made-by-yaml").exists()
    assert not (tmp_path / "outputs").exists()


def test_a_missing_config_folder_is_named(refuse):
    refuse(
        ["--config-dir nowhere: no such folder"], "run", "--config-dir", "nowhere", "method=desa"
    )


def test_cells_that_would_write_to_one_folder_are_refused(collection, refuse, tmp_path):
    common = [
        "dataset=beir_folder",
        f"dataset.path={collection}",
        "cluster=serial",
        "hydra.sweep.subdir=same",
    ]
    refuse(
        ["hydra.sweep.subdir", "same", "${hydra.job.num}"],
        "run",
        "-m",
        *common,
        "method=original,desa",
    )
    assert not (tmp_path / "outputs").exists()


def test_a_verb_that_does_not_sweep_says_so(refuse):
    refuse(["desa generate: this verb does not sweep"], "generate", "-m", "draws=1,2")


def test_unknown_settings_of_other_verbs_are_refused(refuse):
    refuse(["exprt", "did you mean export?"], "generate", "exprt=x")
    refuse(["recods", "did you mean records?"], "report", "recods=x")
    refuse(["primary.k: true and false"], "report", "primary.k=true")
    refuse(["no expected 'scifat'", "did you mean scifact?"], "verify", "expected=scifat")


def test_a_refused_plan_leaves_the_folders_that_were_there(collection, refuse, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "mine.txt").write_text("kept")
    refuse(["fusion.k"], "run", "dataset=beir_folder", f"dataset.path={collection}", "fusion.k=0")
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["mine.txt"]
    assert list((tmp_path / "home").iterdir()) == []


def test_a_folder_that_another_run_writes_to_is_refused(collection, refuse, tmp_path):
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / IN_USE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        common = ["dataset=beir_folder", f"dataset.path={collection}", "cluster=serial"]
        refuse(
            ["out: another run is writing", "hydra.run.dir"], "run", *common, "hydra.run.dir=out"
        )
        refuse(
            ["out: another run is writing"],
            "run",
            "-m",
            *common,
            "hydra.sweep.dir=out",
            "method=original,desa",
        )
    refuse(["fusion.k"], "run", *common, "hydra.run.dir=out", "fusion.k=0")  # its lock is gone
    assert not (tmp_path / "out" / IN_USE).exists()


def test_flags_may_stand_anywhere_among_the_overrides():
    assert ordered(["a=1", "--config-dir", "my", "b=2", "-m"]) == [
        "--config-dir",
        "my",
        "a=1",
        "b=2",
        "-m",
    ]
    assert ordered(["--config-dir=my", "a=1", "--cfg", "job"]) == [
        "--config-dir=my",
        "--cfg",
        "job",
        "a=1",
    ]


@pytest.mark.parametrize("verb", ["run", "plan", "generate", "verify", "report"])
def test_help_tells_purpose_examples_and_choices(verb):
    text = help_text(verb)
    assert f"usage: desa {verb}" in text
    assert f"  desa {verb}" in text.split("examples:")[1]
    assert ("-m  " in text) == (verb in ("run", "plan"))
    assert bool(re.search(r"expected +arguana, ", text)) == (verb == "verify")
    assert ("sparse_only" in text) == (verb != "report")


def test_help_lists_choices_of_the_users_own_folder(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("name: mine\n")
    assert (
        "mine"
        in help_text("run", ["--config-dir", str(tmp_path)])
        .split("  method ")[1]
        .split("sparse_only")[0]
    )


def test_numbers_at_their_limits_are_taken_and_beyond_refused():
    assert checked(FusionConfig, {"kappa": "1/3", "k": 2**31 - 1}).k == 2**31 - 1
    assert checked(ClusterConfig, {"encoder_gpus": 0.5}).encoder_gpus == 0.5
    for kind, values in (
        (FusionConfig, {"k": 2**31}),
        (ClusterConfig, {"scorers": 10_001}),
        (FusionConfig, {"kappa": 10**18}),
    ):
        with pytest.raises(Problems):
            checked(kind, values)


def test_nested_mistakes_name_their_place_and_the_nearest_name():
    with pytest.raises(Problems) as caught:
        checked(
            RunConfig,
            {
                "method": {
                    "name": "m",
                    "channels": [{"name": "d", "kind": "dense", "operater": "original"}],
                }
            },
        )
    assert "method.channels.0.operater: no such setting (did you mean operator?" in str(
        caught.value
    )


def test_choices_name_the_nearest_first():
    assert choices("kapa", ["k", "kappa"]) == "did you mean kappa? known: k, kappa"
    assert choices("zzz", ["k", "kappa"]) == "known: k, kappa"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "evaluation.measures=[NDCG@10]",
            ["evaluation.measures: ", "did you mean nDCG@10?"],
        ),
        (
            "method.channels.0.operator=residul",
            ["unknown dense operator 'residul'", "did you mean residual?"],
        ),
    ],
)
def test_a_near_match_is_named_where_a_method_is_checked(override, words, refuse, collection):
    refuse(words, "run", *dataset(collection), "cluster=serial", override)


def test_a_measure_without_a_value_for_the_collections_grades(refuse, collection):
    """A measure without a value for the collections grades is refused by a plan."""
    (collection / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td0\t5\nq2\td2\t1\n"
    )
    words = [
        "evaluation.measures: measure 'ERR@10' takes grades up to 4",
        "query 'q1', document 'd0', grade 5",
    ]
    refuse(words, "plan", *dataset(collection), "method=original", "evaluation.measures=[ERR@10]")


def test_a_place_that_is_not_in_a_list_is_named_with_the_reason(refuse):
    """Hydra says no more than that the override could not be merged."""
    override = "++method.channels.9.operator=rm3"
    refuse([override, "index out of range", "--cfg job"], "plan", "method=rm3", override)
