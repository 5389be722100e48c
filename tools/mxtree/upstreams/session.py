# SPDX-License-Identifier: Apache-2.0
"""An HTTP session with the certificates, proxy, retries and trusted hosts that pip has."""

from __future__ import annotations

import io
import ssl
from typing import TYPE_CHECKING, Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from mxtree import __version__
from mxtree.upstreams.pip_settings import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mxtree.upstreams.pip_settings import PipSettings

#: pip's default. A host that cannot be reached at all is given up on sooner.
_RETRIES = 5
_CONNECT_RETRIES = 2


def open_session(settings: PipSettings) -> requests.Session:
    """Return a session; file URLs work in it too, an index of files being pip's right."""
    session = _Session()
    session.headers["User-Agent"] = f"mxtree/{__version__}"
    retry = _retry(settings.retries)
    # pip trusts the system's certificates besides its own list; so does this context.
    context = None if settings.cert else ssl.create_default_context()
    session.mount("https://", _Adapter(retry, context))
    session.mount("http://", _Adapter(retry))
    session.mount("file://", _FileAdapter())
    for host in settings.trusted_hosts:
        session.mount(f"https://{host}/", _Unverified(retry))
        if ":" not in host:
            session.mount(f"https://{host}:", _Unverified(retry))
    if settings.trusted_hosts:
        # The user asked for unverified connections; a warning for each request helps nobody.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    session.verify = settings.cert or True
    session.cert = settings.client_cert
    if settings.proxy:
        session.proxies = {"http": settings.proxy, "https": settings.proxy}
        # As pip has it: else the variables of the environment would win over the setting.
        session.trust_env = False
    return session


class _Session(requests.Session):
    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        # requests would let REQUESTS_CA_BUNDLE win over the certificates that were asked for.
        verify = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, verify, cert)


def _retry(retries: int | None) -> Retry:
    return Retry(
        total=_RETRIES if retries is None else retries,
        connect=_CONNECT_RETRIES if retries is None else retries,
        status_forcelist=(500, 502, 503, 504),
        backoff_factor=0.25,
        raise_on_status=False,
    )


class _Adapter(HTTPAdapter):
    def __init__(self, retry: Retry, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        super().__init__(max_retries=retry)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._context is not None:
            kwargs["ssl_context"] = self._context
        super().init_poolmanager(*args, **kwargs)


class _Unverified(_Adapter):
    def cert_verify(self, conn: Any, url: Any, _verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, verify=False, cert=cert)  # type: ignore[no-untyped-call]


class _FileAdapter(requests.adapters.BaseAdapter):
    """Serves file URLs: a folder answers with its index.html."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: ARG002  the signature is the base class's
        timeout: Any = None,  # noqa: ARG002
        verify: Any = True,  # noqa: ARG002
        cert: Any = None,  # noqa: ARG002
        proxies: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> requests.Response:
        response = requests.Response()
        response.request = request
        response.url = request.url or ""
        path = local_path(response.url.partition("#")[0])
        path = path / "index.html" if path and path.is_dir() else path
        try:
            if path is None:
                raise FileNotFoundError
            data = path.read_bytes()
            response.raw = io.BytesIO(data)
            response.status_code = 200
            response.headers["Content-Length"] = str(len(data))
            if path.suffix == ".html":
                response.headers["Content-Type"] = "text/html"
        except OSError as error:
            response.raw = io.BytesIO(str(error).encode())
            response.status_code = 404 if isinstance(error, FileNotFoundError) else 403
        # What requests asks of a urllib3 response when a download ends.
        setattr(response.raw, "release_conn", response.raw.close)  # noqa: B010  no such attribute
        return response

    def close(self) -> None:
        pass
