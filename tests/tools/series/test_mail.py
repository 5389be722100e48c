# SPDX-License-Identifier: Apache-2.0
"""Reading a patch mail, against `git mailsplit` and `git mailinfo`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxtree.errors import FatalError
from mxtree.git import git
from mxtree.series.gitmail import read_with_git
from mxtree.series.mail import parse_date, parse_mail, strip_space

FEW = settings(max_examples=80, deadline=None, derandomize=True, database=None)

HEADERS = (
    *("Content-Type: text/plain; charset=UTF-8", "Content-Transfer-Encoding: 8bit", "X-Other: y"),
    *("MIME-Version: 1.0", "To: a@example.org,\n b@example.org", "Message-Id: <x@y>"),
    *("Content-Type: text/plain; charset=ISO-8859-15", "X:y", "Subject: again", "no header"),
)
SUBJECTS = (
    *("plain", "[PATCH 1/2] tagged", "folded\n over\n  lines", "folded\n\twith tab", "caf\u00e9"),
    *("=?UTF-8?q?caf=C3=A9=20?=\n =?UTF-8?q?au=20lait?=", "a =?utf-8?B?w6k=?= b", "=?x?y", "=?="),
    *("=?UTF-8?q?a=C3?= =?UTF-8?q?=A9?=", "=?UTF-8?q?two=0Alines?=", " spaced  out ", "trailing "),
    *("=?latin1?q?=E9?=", "=?UTF-8?x?a?=", "=?UTF-8?q?a_b=2?=", "tab\there", "=?UTF-8?q?=00?="),
    *("=?UTF-8?q?a?= =?UTF-8?q?b?= c =?UTF-8?q?d?=", "=?UTF-8?b?w6k?=", "=?UTF-8?q?a b?="),
    *("=?UTF-8?q?=20a?=", "=?UTF-8?q?a_?="),
)
AUTHORS = (
    *("Ada L <ada@example.org>", '"Acme, Inc" <a@b.org>', '"J. \\"x\\" D" <j@d.org>', "<only@x>"),
    *(
        "=?UTF-8?q?Ren=C3=A9e?= <r@example.org>",
        "a@b.org (In Brackets)",
        "No Address",
        "two  sp <a@b>",
    ),
    *(
        "'Quoted' <q@b.org>",
        "x" * 70 + " <long@x.org>",
        "A <a@b> extra",
        "A(x)B <a@b.org>",
        "A <a b@c>",
    ),
)
BODY_LINES = (
    *("", "text", "  indented", "trailing  ", "\ttab", "caf\u00e9", ">From x", ">>From y", "> q"),
    *(
        "From: Bob <b@example.org>",
        "Subject: no",
        "Date: today",
        "[PATCH] x",
        "---",
        "--- ",
        "--- a",
    ),
    *("----", "-- ", "---x", "diff --git a/a b/a", "diff -u a b", "diff", "Index: a", "Index:a"),
    *("8< -- 8<", "-- >8 --", "\r", "text\r", "\x0c", "@@ -1 +1 @@", "description: x", "from: x"),
)


@st.composite
def mails(draw: st.DrawFn) -> bytes:
    """Return one mail of all sorts of pieces, of which git makes something, mostly."""
    headers = [
        f"From: {draw(st.sampled_from(AUTHORS))}",
        "Date: Tue, 1 Dec 2026 00:00:00 +0000",
        f"Subject: {draw(st.sampled_from(SUBJECTS))}",
        *draw(st.lists(st.sampled_from(HEADERS), max_size=2)),
    ]
    body = draw(st.lists(st.sampled_from(BODY_LINES), max_size=6))
    text = "\n".join(["From " + "0" * 40 + " Mon Sep 17 00:00:00 2001", *headers, "", *body, ""])
    return text.encode()


@settings(FEW, max_examples=200)
@given(mails())
def test_what_is_read_here_is_what_git_reads(raw: bytes) -> None:
    mail = parse_mail(raw)
    if mail is None:
        return
    expected = read_with_git(raw, Path("x.patch"))
    assert mail.message == expected.message
    assert mail.diff == expected.diff
    assert raw.split(b"\n")[mail.diff_line - 1 :] == mail.diff.split(b"\n")
    name = expected.author.rpartition(b" <")[0]
    assert mail.author.rpartition(b" <")[0] == name.strip(b"'")


def test_most_mails_are_read_here(raw: bytes) -> None:
    """The property above must not hold because nothing is ever read."""
    plain = [
        raw,
        raw.replace(b"Count to three", b"=?UTF-8?q?caf=C3=A9?="),
        raw.replace(b"Ada L", b'"Acme, Inc."'),
        raw.replace(b"\n\n", b"\nMIME-Version: 1.0\n\n", 1),
        raw.replace(b"\ndiff", b"\n---\n code.py | 2 +-\n\ndiff", 1),
        raw + b"-- \n2.39.5\n\n",
        raw.replace(b"\n\n", b"\n\nFrom: Bob B <b@example.org>\n\n", 1),
        raw.replace(b"\nDate", b"\nReceived: x\nReceived: y\n z\nDate", 1),
    ]
    assert all(parse_mail(mail) is not None for mail in plain)


@pytest.mark.parametrize(
    "change",
    [
        (b"charset=UTF-8", b"charset=ISO-8859-1"),
        (b"8bit", b"base64"),
        (b"\n\n", b"\n\nFrom: Bob <b@example.org>\nSubject: other\n\n"),
        (b"\n\n", b"\n\nSubject: other\n\n"),
        (b"Two was", b"caf\xe9"),
        (b"Two was", b"a\0b"),
        (b"\n\n", b"\n\nhello\nFrom x@y Mon Sep 17 00:00:00 2001\n"),
        (b"From 0000", b"From 00"),
        (b"Ada L <ada@example.org>", b"ada@example.org"),
        (b"+0000", b"GMT"),
    ],
)
def test_what_only_git_may_judge_is_left_to_git(raw: bytes, change: tuple[bytes, bytes]) -> None:
    mime = b"\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n"
    raw = raw.replace(b"\n\n", mime, 1)
    assert parse_mail(raw) is not None
    assert parse_mail(raw.replace(*change, 1)) is None


IN_BODY = (
    *(b"\n\nFrom: Bob B <b@example.org>\n\n", b"\n\n\nFrom: Bob B <b@example.org>  \n\n\n\n"),
    *(
        b"\n\nFrom: Bob B <b@example.org>\n\nFrom: text\n",
        b"\n\nFrom: \n\n",
        b"\n\nFrom:  B <b@x>\n\n",
    ),
    *(b"\n\nFrom: =?UTF-8?q?Ren=C3=A9e?= <r@x.org>\n\nSubject: text\n", b"\n\nfrom: B <b@x>\n\n"),
    *(b"\n\nFrom: Bob B <b@example.org>\n folded\n\n", b"\n\nFrom: no address\n\n"),
    *(b"\n\nFrom: Bob B <b@example.org>\nmore text\n\n", b"\n\n From: B <b@x>\n\n"),
)


@pytest.mark.parametrize("text", IN_BODY)
@pytest.mark.parametrize("has_diff", [True, False])
def test_an_author_in_the_message_is_the_one_that_git_takes(
    raw: bytes, text: bytes, has_diff: bool
) -> None:
    raw = raw.replace(b"\n\n", text, 1)
    raw = raw if has_diff else raw[: raw.index(b"\ndiff")]
    mail = parse_mail(raw)
    if mail is not None:
        expected = read_with_git(raw, Path("x.patch"))
        assert mail.author.rpartition(b" <")[0] == expected.author.rpartition(b" <")[0]
        assert mail.message == expected.message


@FEW
@given(st.lists(st.sampled_from(["", "a", " ", "b \t", "\r", "\x0c", "c\r"]), max_size=12))
def test_white_space_goes_as_git_lets_it_go(lines: list[str]) -> None:
    text = "\n".join(["subject", *lines]).encode()
    assert strip_space(text) == git("stripspace", stdin=text)


@FEW
@given(
    st.datetimes(
        min_value=datetime(1971, 1, 1),  # noqa: DTZ001  the zone is drawn apart
        max_value=datetime(2099, 12, 30),  # noqa: DTZ001
    ),
    st.sampled_from(["+0000", "-0000", "+0545", "-1130", "+1400"]),
)
def test_dates_are_those_of_git(moment: datetime, zone: str) -> None:
    text = f"{moment:%a, {moment.day} %b %Y %H:%M:%S} {zone}"
    author = {"GIT_AUTHOR_DATE": text, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "b"}
    ident = git("var", "GIT_AUTHOR_IDENT", env=author).strip()
    assert parse_date(text.encode()) == ident.rpartition(b"> ")[2]


@pytest.mark.parametrize(
    "text",
    ["Tue, 31 Feb 2026 00:00:00 +0000", "Tue, 1 Dec 1969 00:00:00 +0000", "1 Dec 2026", "", "now"],
)
def test_other_dates_are_left_to_git(text: str) -> None:
    assert parse_date(text.encode()) is None


def test_several_mails_are_refused(raw: bytes) -> None:
    with pytest.raises(FatalError, match="holds 3 mails"):
        read_with_git(raw * 3, Path("x.patch"))
