"""Two processes that repair one store at once: the graph that they run, the damage, and what each
of them says.

`python tests/store/two_repairs.py 500` runs many rounds and writes those that did not end well.
"""

import hashlib
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desa_ray.errors import DesaError
from desa_ray.pipeline.execute import Quiet, missing, run_stage, schedule
from desa_ray.pipeline.serial import SerialBackend
from desa_ray.pipeline.stage import Finished, Shard, Stage, Work, bounds, shards_of
from desa_ray.store.artifacts import Store
from desa_ray.store.files import Files

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["desa_ray.pipeline.execute", "desa_ray.pipeline.serial", "desa_ray.locks"]
)
ROWS, LIMIT_S = 6, 120.0


@dataclass(frozen=True)
class Derived(Work):
    """Rows that follow from the stage's name and the bytes of its inputs; some take longer than
    others.
    """

    pool: None = None
    pause_s: float = 0.0

    def layout(self, stage: Stage) -> Mapping[str, Any]:
        return {"bounds": bounds(ROWS, 1)}

    def shards(self, layout: Mapping[str, Any]) -> list[Shard]:
        return shards_of(layout, "part-{}.bin")

    def run(self, engine: Any, stage: Stage, shard: Shard) -> None:
        digest = hashlib.sha256(f"{stage.name} {shard.number}".encode())
        for source in stage.inputs.values():
            for name in source.artifact.parts():
                digest.update(source.artifact.read_part(name).read_bytes())
        time.sleep(self.pause_s * (digest.digest()[0] % 4))
        stage.artifact.write_part(shard.parts[0], digest.digest() * 8, rows=1)

    def finish(self, stage: Stage, layout: Mapping[str, Any]) -> Finished:
        digest = hashlib.sha256()
        for shard in self.shards(layout):
            digest.update(stage.artifact.read_part(shard.parts[0]).read_bytes())
        return Finished(digest.hexdigest(), {"rows": ROWS})


def graph(store: Store, pause_s: float = 0.0) -> list[Stage]:
    """Five stages, the last of which need all others."""
    work = Derived(pause_s=pause_s)
    corpus = Stage(store, "corpus", 1, {}, work)
    vectors = Stage(store, "vectors", 1, {}, work, {"corpus": corpus})
    postings = Stage(store, "postings", 1, {}, work, {"corpus": corpus})
    ranking = Stage(store, "ranking", 1, {}, work, {"vectors": vectors, "postings": postings})
    return [
        Stage(store, "fusion", number, {}, work, {"ranking": ranking, "corpus": corpus})
        for number in (1, 2)
    ]


def run(root: str, pause_s: float = 0.0) -> None:
    """What `desa run store.repair=true` does with the graph."""
    store = Store(root, repair=True)
    targets = graph(store, pause_s)
    for stage in schedule(missing(targets)):
        run_stage(stage, SerialBackend(), Quiet())


def _slow_disk(seed: int) -> None:
    """Makes file operations of this process take a while now and then, so that the other one comes
    in between.
    """
    chance = random.Random(seed)

    def slowed(operation: Any) -> Any:
        def slow(*arguments: Any, **options: Any) -> Any:
            time.sleep(chance.choice((0.0, 0.0, 0.0, 0.002, 0.01)))
            return operation(*arguments, **options)

        return slow

    for name in ("list", "read_bytes", "delete", "publish", "local_path"):
        setattr(Files, name, slowed(getattr(Files, name)))


def _told(root: str, pause_s: float, seed: int, barrier: Any, told: Any) -> None:
    _slow_disk(seed)
    barrier.wait(LIMIT_S)
    time.sleep(random.Random(seed).choice((0.0, 0.1, 0.2, 0.3, 0.5)))
    try:
        run(root, pause_s)
        told.put("done")
    except DesaError as error:
        told.put(str(error))


def damage(root: Path, chance: random.Random) -> list[str]:
    """Hurt some files, each in a way of its own."""
    files = sorted(
        path for path in root.rglob("*") if path.is_file() and ".locks" not in path.parts
    )
    hurt = chance.sample(files, chance.randint(1, 5))
    for path in hurt:
        path.chmod(0o644)
        data = path.read_bytes()
        match chance.choice(("flip", "cut", "empty", "remove")):
            case "flip":
                path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
            case "cut":
                path.write_bytes(data[: len(data) // 2])
            case "empty":
                path.write_bytes(b"")
            case "remove":
                path.unlink()
    return [str(path.relative_to(root)) for path in hurt]


def round_of_two(
    whole: Path, root: Path, chance: random.Random
) -> tuple[list[str], list[str], list[str]]:
    """Damage a copy of a whole store and let two processes repair it at once.

    Returns:
        What was hurt, what the two said ("done" or an error), and what is wrong afterwards.
    """
    shutil.copytree(whole, root)
    hurt = damage(root, chance)
    barrier, told = PROCESSES.Barrier(2), PROCESSES.Queue()
    pause_s = chance.choice((0.0, 0.001, 0.003))
    seeds = [chance.randrange(1 << 30) for _ in range(2)]
    both = [
        PROCESSES.Process(target=_told, args=(str(root), pause_s, seed, barrier, told))
        for seed in seeds
    ]
    for process in both:
        process.start()
    deadline = time.monotonic() + LIMIT_S
    for process in both:
        process.join(max(0.0, deadline - time.monotonic()))
    hung = [process for process in both if process.is_alive()]
    for process in hung:
        process.kill()
        process.join()
    said = ["hung"] * len(hung) + [told.get(timeout=10) for _ in range(2 - len(hung))]
    # Damage of what nothing missing is made from is not looked for: only the targets must be whole.
    pairs = list(zip(graph(Store(root)), graph(Store(whole)), strict=True))
    wrong = [str(error) for stage, _ in pairs for error in stage.artifact.damage().values()]
    wrong += [
        f"{stage.name} differs" for stage, first in pairs if _content(stage) != _content(first)
    ]
    return hurt, said, wrong


def _content(stage: Stage) -> str:
    return stage.artifact.manifest()["content"] if stage.artifact.exists() else "absent"


def by_hand(rounds: int, seed: int) -> None:
    """Many rounds; writes those that did not end well, and how long the longest took."""
    with tempfile.TemporaryDirectory(prefix="desa-") as name:
        folder, chance, bad, longest = Path(name), random.Random(seed), 0, 0.0
        run(str(folder / "whole"))
        for number in range(rounds):
            started = time.monotonic()
            hurt, said, wrong = round_of_two(folder / "whole", folder / "round", chance)
            longest = max(longest, time.monotonic() - started)
            shutil.rmtree(folder / "round")
            if said != ["done", "done"] or wrong:
                bad += 1
                sys.stdout.write(f"round {number}: hurt {hurt}; said {said}; wrong {wrong}\n")
                sys.stdout.flush()
        sys.stdout.write(
            f"{rounds} rounds, {bad} did not end well, the longest took {longest:.1f} s\n"
        )


if __name__ == "__main__":
    by_hand(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 14)
