"""The only package that knows MLflow."""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
