# SPDX-License-Identifier: Apache-2.0
"""Find a file on the package indexes that pip is configured with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import requests
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    NoSuchProjectError,
    ProjectPage,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from mxtree.upstreams.pip_settings import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mxtree.upstreams.pip_settings import PipSettings


@dataclass(frozen=True)
class Offer:
    """A file on an index; ``place`` is the index without credentials."""

    place: str
    file: str
    url: str
    sha256: str | None


@dataclass
class Index:
    """All the places that pip would ask, as one."""

    session: requests.Session
    settings: PipSettings
    #: Ask only find-links folders and indexes of files.
    offline: bool = False
    #: Why a place offered nothing, by the order of asking.
    notes: list[str] = field(default_factory=list)
    #: Whether a place could not be asked, and whether one has other bytes than the pinned ones.
    unreachable: bool = False
    wrong: bool = False

    def offers(self, project: str, is_wanted: Callable[[str], bool]) -> Iterator[Offer]:
        """Yield the files of a project whose name is wanted; a place is asked when reached.

        Local places come first: they cost nothing.
        """
        for place in sorted(self._places(), key=lambda place: local_path(place) is None):
            if local_path(place) is None and self.offline:
                continue
            shown = without_credentials(place)
            files = self._ask(place, shown, project)
            if files is None:
                continue
            offered = [offer for offer in files if is_wanted(offer.file)]
            if not offered:
                self.notes.append(f"{shown}: does not have this file")
            yield from offered

    def _places(self) -> Iterator[str]:
        yield from self.settings.find_links
        if not self.settings.no_index:
            yield self.settings.index_url or PYPI_SIMPLE_ENDPOINT
            yield from self.settings.extra_index_urls

    def _ask(self, place: str, shown: str, project: str) -> list[Offer] | None:
        """Return what a place has of a project; None, and a note, when it could not say."""
        try:
            links = place in self.settings.find_links
            return (self._links if links else self._page)(place, shown, project)
        except NoSuchProjectError:
            self.notes.append(f"{shown}: has no {project}")
        except (requests.RequestException, OSError) as error:
            self.unreachable = True
            self.notes.append(f"{shown}: {reason(error)}")
        except (UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError) as error:
            self.notes.append(f"{shown}: is no package index: {error}")
        return None

    def _page(self, place: str, shown: str, project: str) -> list[Offer]:
        client = PyPISimple(_url(place), session=self.session)
        page = client.get_project_page(project, timeout=self.settings.timeout_s)
        return _offers(place, shown, page)

    def _links(self, place: str, shown: str, project: str) -> list[Offer]:
        path = local_path(place)
        if path is not None and path.is_dir():
            files = sorted(path.absolute().iterdir())
            return [Offer(shown, file.name, file.as_uri(), None) for file in files]
        response = self.session.get(_url(place), timeout=self.settings.timeout_s)
        response.raise_for_status()
        return _offers(place, shown, ProjectPage.from_response(response, project))


def _url(place: str) -> str:
    path = local_path(place)
    return path.absolute().as_uri() if path is not None else place


def _offers(place: str, shown: str, page: ProjectPage) -> list[Offer]:
    return [
        Offer(
            shown,
            package.filename,
            _with_credentials(package.url, place),
            package.digests.get("sha256"),
        )
        for package in page.packages
    ]


def _with_credentials(url: str, place: str) -> str:
    """Return a file's URL with the user of its index when both are on the same host."""
    parts, index = urlsplit(url), urlsplit(place)
    if parts.netloc != index.netloc.rpartition("@")[2] or parts.scheme != index.scheme:
        return url
    return urlunsplit(parts._replace(netloc=index.netloc))


def reason(error: BaseException) -> str:
    """Return the short cause of a network error: no object names, no URL that holds a password."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code} {error.response.reason}"
    while inner := _inner(error):
        error = inner
    return str(error).rpartition(">: ")[2] or type(error).__name__


def _inner(error: BaseException) -> BaseException | None:
    wrapped = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    return wrapped if isinstance(wrapped, BaseException) else None


def without_credentials(url: str) -> str:
    """Return a URL that may be shown: user name and password removed."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
