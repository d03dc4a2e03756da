"""Serves moto's S3 on 127.0.0.1:PORT, one request at a time, so that conditional puts are as atomic
as a real store's.

With `careless` it drops the condition of every put, as servers do that do not know it.
"""

import sys

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)


def careless(environment, start_response):
    environment.pop("HTTP_IF_NONE_MATCH", None)
    return application(environment, start_response)


if __name__ == "__main__":
    served = careless if "careless" in sys.argv[2:] else application
    run_simple("127.0.0.1", int(sys.argv[1]), served, threaded=False, use_reloader=False)
