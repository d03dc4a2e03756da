"""Ray's job client, on top of the platform's HTTP client: every request has a time limit, and none
is redirected.
"""

from typing import Any

import requests

from desa_ray.http_client import Bounds, Session

REQUEST_TIMEOUT_S = 60.0  # the job server starts a supervisor before it answers a submission
RATE = 32 << 10  # bytes per second: uploading a working directory may take longer the larger it is
BODY_BYTES = 64 << 20


def job_client(address: str) -> Any:
    """A `JobSubmissionClient`, connected to the job server at `address`; raises what Ray's own
    raises.
    """
    from ray._private.authentication.http_token_authentication import (
        format_authentication_http_error,
    )
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):
        def _do_request(
            self,
            method: str,
            endpoint: str,
            *,
            data: bytes | None = None,
            json_data: dict | None = None,
            **options: Any,
        ) -> requests.Response:
            own = {"cookies": self._cookies, "headers": self._headers, "verify": self._verify}
            with Session(Bounds(REQUEST_TIMEOUT_S, BODY_BYTES, rate=RATE)) as server:
                url = self._address + endpoint
                response = server.request(method, url, data=data, json=json_data, **own, **options)
            refused = format_authentication_http_error(response.status_code, response.text)
            if refused:
                raise AuthenticationError(refused)
            return response

    return Client(address)
