"""Stands in for onnxruntime-gpu where there is no GPU: Python imports this file from PYTHONPATH.

A session that asks for CUDA computes on the CPU, changes the last digits, as another device does,
and notes which GPUs its process sees. Everything around the library is the platform's own.
"""

import importlib.util
import os
import sys
from pathlib import Path


class Finder:
    """Changes onnxruntime when it is first imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "onnxruntime" or Finder not in sys.meta_path:
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            changed(module)

        spec.loader.exec_module = exec_module
        return spec


def changed(module):
    real = module.InferenceSession

    class Session:
        def __init__(self, graph, options, providers):
            self.cuda = any("CUDAExecutionProvider" in provider for provider in providers)
            self.session = real(graph, options, ["CPUExecutionProvider"])
            self.get_inputs, self.get_outputs = self.session.get_inputs, self.session.get_outputs
            if self.cuda:
                note = Path(os.environ["DESA_SEEN_GPUS"]) / str(os.getpid())
                note.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))

        def get_providers(self):
            return ["CUDAExecutionProvider"] if self.cuda else ["CPUExecutionProvider"]

        def run(self, names, inputs):
            (found,) = self.session.run(names, inputs)
            if self.cuda:
                found = found.copy()
                found[..., ::2] += 2e-3
            return [found]

    module.InferenceSession = Session
    module.get_available_providers = lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]


sys.meta_path.insert(0, Finder)
