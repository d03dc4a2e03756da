"""The only package that knows MLflow."""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
# Every log entry waits on disk until it is sent, so a server that is away must not hold a sweep up
# for minutes.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = (
    "0"  # what is repeated, and when, is decided here: `transport.py`
)
# Parts of large artifacts would go to addresses that the server names, without any limit.
os.environ["MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD"] = "false"
os.environ["MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD"] = "false"
os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = (
    "true"  # names out of the server's answers, as they come
)
