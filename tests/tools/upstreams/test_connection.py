# SPDX-License-Identifier: Apache-2.0
"""Certificates, trusted hosts, proxies and passwords: pip's settings are in effect, or it fails."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from local_index import LocalIndex, serve
from workshop import SDIST

from mxtree.errors import FatalError
from mxtree.upstreams import Imported, Source, ensure_imported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workshop import Workshop


def bring(workshop: Workshop) -> Imported:
    return ensure_imported(workshop.project, workshop.upstream(), "1.0", Source("index"))


def refused(workshop: Workshop) -> str:
    with pytest.raises(FatalError) as caught:
        bring(workshop)
    assert "secret" not in str(caught.value.details)
    return "\n".join(caught.value.details)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    name = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(path), "-out", str(path.with_suffix(".crt")))
    command = ["openssl", "req", *kind, "-days", "2", *name, *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@pytest.fixture
def secure(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalIndex]:
    """Serve the tiny release over TLS, with a certificate that nobody knows."""
    with serve(certificate) as local:
        local.add("tiny", "tiny-1.0.tar.gz", SDIST)
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", local.url)
        monkeypatch.setenv("PIP_RETRIES", "0")
        yield local


def test_an_unknown_certificate_is_refused(workshop: Workshop, secure: LocalIndex) -> None:
    assert "certificate verify failed" in refused(workshop)


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", None])
def test_the_certificate_that_pip_was_given_acts(
    workshop: Workshop,
    secure: LocalIndex,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", str(certificate.with_suffix(".crt")))
    if variable:
        monkeypatch.setenv(variable, "/nonexistent")
    assert bring(workshop).downloaded == len(SDIST)


@pytest.mark.parametrize("with_port", [False, True])
def test_a_trusted_host_is_not_verified(
    workshop: Workshop, secure: LocalIndex, monkeypatch: pytest.MonkeyPatch, with_port: bool
) -> None:
    host = secure.url.split("/")[2]
    monkeypatch.setenv("PIP_TRUSTED_HOST", host if with_port else "127.0.0.1")
    assert bring(workshop).downloaded == len(SDIST)


def test_another_trusted_host_does_not_help(
    workshop: Workshop, secure: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.10 localhost 127.0.0.1:9")
    assert "certificate verify failed" in refused(workshop)


def test_the_proxy_that_pip_was_given_acts(
    workshop: Workshop, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("PIP_PROXY", "http://127.0.0.1:9")
    assert "refused" in refused(workshop)
    assert not index.requests


@pytest.mark.parametrize("links", ["relative", "absolute"])
def test_the_password_of_an_index_acts_for_its_files(
    workshop: Workshop, index: LocalIndex, monkeypatch: pytest.MonkeyPatch, links: str
) -> None:
    index.login = "me:secret"
    if links == "absolute":
        root = index.url.removesuffix("simple/")
        index.projects["tiny"]["tiny-1.0.tar.gz"] = f"{root}files/tiny-1.0.tar.gz"
    assert "HTTP status 401" in refused(workshop)
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:wrong-secret@"))
    assert "HTTP status 401" in refused(workshop)
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:secret@"))
    assert bring(workshop).downloaded == len(SDIST)
