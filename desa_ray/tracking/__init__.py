"""The only package that knows MLflow."""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
# Every log entry waits on disk until it is sent, so a server that is away must not hold a sweep up for minutes.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
