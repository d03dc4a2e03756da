"""An encoder and a generator, small enough to be checked by hand."""

import hashlib
import json

import numpy as np

from desa_ray.engines.chat import Output
from desa_ray.engines.plugged import EncoderEngine, GeneratorEngine

DIMENSION = 64


class WordHashes:
    """A text as the sum of a signed axis per word, at length one."""

    dimension = DIMENSION
    block_size = 1

    def encode(self, texts, names=None):
        """float32 [len(texts), 64]."""
        vectors_ND = np.zeros((len(texts), DIMENSION), np.float32)
        for row, text in enumerate(texts):
            for word in ["", *text.lower().split()]:
                number = hashlib.sha256(word.encode()).digest()[0]
                vectors_ND[row, number % DIMENSION] += 1 if number < 128 else -1
            vectors_ND[row, 0] += 0.5  # no text is without length
        return vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)


class Echo:
    """Answers every request with its last word, five times."""

    model, revision = "echo", "1"

    def generate(self, requests):
        """One JSON array of five strings per request."""
        outputs = []
        for request in requests:
            word = json.loads(request.messages[-1]["content"])["query"].split()[-1]
            texts = [f"{word} {number} of five" for number in range(1, 6)]
            outputs.append(Output(json.dumps(texts), "stop", None, None))
        return outputs


MY_HASHES = EncoderEngine(
    identity=lambda config, model_home: {"dimension": DIMENSION},
    load=lambda config, threads, model_home, batch_size: WordHashes(),
)
MY_ECHO = GeneratorEngine(
    identity=lambda config: {},
    load=lambda config, model_home, threads: Echo(),
)
