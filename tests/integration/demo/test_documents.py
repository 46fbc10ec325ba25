"""Documents: every kind of bad file is skipped by name and reason, and the order never changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from airflow_aiflow.demo import reading
from airflow_aiflow.demo.documents import Document, Reading, read_documents
from airflow_aiflow.demo.licences import installed_licences
from airflow_aiflow.exceptions import AiflowConfigError

#: The user and group "nobody" on every Linux.
NOBODY = 65534


def make_pdf(path: Path, *texts: str, password: str | None = None, algorithm: str = "AES-256", user: str = "") -> None:
    """Write a PDF with a line of text on each page."""
    writer = PdfWriter()
    for text in texts:
        page = writer.add_blank_page(width=300, height=300)
        font = DictionaryObject(
            {NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in
             {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica"}.items()}
        )  # fmt: skip
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    if password is not None:
        writer.encrypt(user, password, algorithm=algorithm)
    writer.write(path)


def reasons(found: Reading) -> dict[str, str]:
    return {each.name: each.reason for each in found.skipped}


def names(found: Reading) -> list[str]:
    return [document.name for document in found.documents]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with one good document, so that the others' reasons are listed instead of raised."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.txt").write_text("A contract.")
    return folder


def test_text_markdown_and_pdf_are_read_in_order_of_name(folder: Path) -> None:
    (folder / "b.md").write_text("# Terms")
    (folder / "sub").mkdir()
    (folder / "sub" / "A.TXT").write_text("Annex.")
    make_pdf(folder / "c.PDF", "First page", "Second page")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.txt").write_text("no")
    (folder / ".git").mkdir()
    (folder / ".git" / "x.txt").write_text("no")
    found = read_documents(str(folder))
    assert names(found) == ["b.md", "c.PDF", "good.txt", "sub/A.TXT"]
    assert found.documents[1].text == "First page\n\nSecond page"
    assert (found.skipped, found.others, found.source) == ([], 1, str(folder))


def test_reading_twice_gives_the_same(folder: Path) -> None:
    for name in ("z.txt", "a.txt", "m.md"):
        (folder / name).write_text(name)
    assert read_documents(str(folder)) == read_documents(str(folder))


def test_the_digest_is_of_names_and_texts_alone() -> None:
    first = Reading("here", [Document("a", "x")], [])
    assert first.digest == Reading("there", [Document("a", "x")], [], 5).digest
    others = [[Document("a", "y")], [Document("b", "x")], [Document("ax", "")], [Document("a", "x")] * 2, []]
    assert len({first.digest, *(Reading("here", each, []).digest for each in others)}) == 6


def test_a_byte_order_mark_is_no_text(folder: Path) -> None:
    (folder / "good.txt").write_bytes(b"\xef\xbb\xbfA contract.")
    assert read_documents(str(folder)).documents == [Document("good.txt", "A contract.")]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\t\r\n", "holds nothing but blanks"),
        ("a.txt", "Müller".encode("cp1252"), "is not UTF-8: byte 0xFC at position 1"),
        ("a.md", "Text".encode("utf-16"), "is not UTF-8: byte 0xFF at position 0"),
        ("a.txt", b"\xed\xa0\x80", "is not UTF-8: byte 0xED at position 0"),
        ("a.pdf", b"", "is empty"),
    ],
)
def test_unreadable_text_is_skipped_with_its_reason(folder: Path, name: str, content: bytes, reason: str) -> None:
    (folder / name).write_bytes(content)
    assert reasons(read_documents(str(folder))) == {name: reason}


@pytest.mark.parametrize("content", [b"no pdf at all", b"%PDF-1.7\n", b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog"])
def test_a_broken_pdf_is_skipped(folder: Path, content: bytes) -> None:
    (folder / "a.pdf").write_bytes(content)
    assert reasons(read_documents(str(folder)))["a.pdf"].startswith("is a damaged PDF: ")


def test_a_pdf_cut_in_half_is_read_or_skipped_but_never_fails_the_rest(folder: Path) -> None:
    make_pdf(folder / "a.pdf", *(f"Page {number}" for number in range(20)))
    whole = (folder / "a.pdf").read_bytes()
    for length in range(1, len(whole), 997):
        (folder / "a.pdf").write_bytes(whole[:length])
        assert "good.txt" in names(read_documents(str(folder)))


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256"])
def test_an_encrypted_pdf_is_skipped(folder: Path, algorithm: str) -> None:
    make_pdf(folder / "a.pdf", "Secret", password="owner", user="user", algorithm=algorithm)
    assert reasons(read_documents(str(folder))) == {"a.pdf": "is encrypted: it opens with a password only"}


def test_a_pdf_that_every_viewer_opens_is_read(folder: Path) -> None:
    make_pdf(folder / "a.pdf", "Printing is forbidden", password="owner")
    assert read_documents(str(folder)).documents[0] == Document("a.pdf", "Printing is forbidden")


def test_a_pdf_without_pages_or_text_is_skipped(folder: Path) -> None:
    make_pdf(folder / "none.pdf")
    make_pdf(folder / "scan.pdf", "")
    assert reasons(read_documents(str(folder))) == {
        "none.pdf": "is a PDF without pages",
        "scan.pdf": "holds no text: a scan?",
    }


def test_a_damaged_pdf_says_nothing_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "a.pdf").write_bytes(b"%PDF-1.7\nnonsense")
    read_documents(str(folder))
    assert caplog.records == []


def test_a_file_that_is_too_large_is_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST_FILE", 3 << 20)
    with (folder / "a.txt").open("wb") as file:
        file.truncate(5 << 20)
    assert reasons(read_documents(str(folder))) == {"a.txt": "has 5 MiB, more than 3 MiB"}


def test_a_pipe_does_not_hang_the_review(folder: Path) -> None:
    os.mkfifo(folder / "a.txt")
    assert reasons(read_documents(str(folder))) == {"a.txt": "is no regular file"}


def test_a_link_counts_once_and_the_real_name_wins(folder: Path) -> None:
    (folder / "a-link.txt").symlink_to(folder / "good.txt")
    assert names(read_documents(str(folder))) == ["good.txt"]


def test_links_in_a_circle_end(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    found = read_documents(str(folder))
    assert names(found) == ["good.txt"]
    assert reasons(found)["sub/up"] == "leads to a folder that was read already"
    assert reasons(found)["gone.txt"] == "can't be read: No such file or directory"
    assert reasons(found)["loop.txt"].startswith("can't be read: ")


@contextmanager
def no_rights() -> Iterator[None]:
    """Give up root's rights for a moment, which no file permission stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_skipped(folder: Path) -> None:
    for parent in (folder, *folder.parents[: folder.parents.index(Path(os.sep))]):
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o077 == 0:
            parent.chmod(0o755)
    (folder / "a.txt").write_text("mine")
    (folder / "a.txt").chmod(0)
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        with no_rights():
            found = read_documents(str(folder))
    finally:
        closed.chmod(0o700)
    assert reasons(found) == dict.fromkeys(["a.txt", "closed"], "can't be read: Permission denied")


def test_a_name_that_is_no_utf8_can_be_stored_and_shown(folder: Path) -> None:
    with open(os.fsencode(folder) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"Text.")
    assert names(read_documents(str(folder))) == ["caf\ufffd.txt", "good.txt"]


def test_a_limit_is_of_readable_documents(folder: Path) -> None:
    (folder / "a.txt").write_text("")
    (folder / "b.txt").write_text("b")
    (folder / "z.txt").write_text("z")
    assert names(read_documents(str(folder), 2)) == ["b.txt", "good.txt"]


def nothing(_: Path) -> None:
    """Leave the folder empty."""


def pictures(folder: Path) -> None:
    (folder / "a.png").write_bytes(b"x")


def all_bad(folder: Path) -> None:
    for name in "abcd":
        (folder / f"{name}.txt").write_text("")


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (nothing, "there is no document in .*/empty: put"),
        (pictures, r"there is no document in .*/empty \(1 files of other types lie there\)"),
        (all_bad, "none of the 4 documents in .* can be read: a.txt is empty; b.txt is empty; c.txt is empty; and 1"),
    ],
)
def test_a_folder_without_documents_is_an_error(tmp_path: Path, fill: Callable[[Path], None], message: str) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    fill(empty)
    with pytest.raises(AiflowConfigError, match=message):
        read_documents(str(empty))


@pytest.mark.parametrize(("name", "what"), [("none", "does not exist"), ("file", "is no folder")])
def test_a_missing_folder_is_an_error(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(AiflowConfigError, match=f"the input folder .*/{name} {what}"):
        read_documents(str(tmp_path / name))


def test_the_licences_of_this_environment_are_there_once_each() -> None:
    found = installed_licences()
    paths = [path.resolve() for _, path in found]
    assert len(paths) == len(set(paths)) > 50
    assert found == sorted(found) == installed_licences()
    assert all(path.is_file() for path in paths)


def test_without_a_folder_the_licences_are_read() -> None:
    found = read_documents(None, 5)
    assert len(found.documents) == 5
    assert names(found) == sorted(names(found))
