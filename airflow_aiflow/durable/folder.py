"""A folder of files outside of the artifact store: where people read a batch's items and look for its results."""

from __future__ import annotations

from typing import BinaryIO, Protocol

#: What a reader is told of a file that is another one in its middle.
REPLACED = "it was replaced or written to while it was read. A further try reads it as it is then"


class Folder(Protocol):
    """
    Keep files by their names. A file is there whole or not at all.

    Raises ``ArtifactUnavailableError`` where it can't be asked, ``ArtifactMissingError`` where a file is not there.
    """

    def put(self, name: str, stream: BinaryIO, *, media_type: str, overwrite: bool = False) -> None:
        """
        Store a file.

        :param name: of the file, without a slash.
        :param stream: can seek; is stored from its beginning.
        :param media_type: its content type.
        :param overwrite: whether a file of that name and size may hold something else; ``False``: its name says what
            is in it.
        """

    def open(self, name: str) -> BinaryIO:
        """
        Open a file for reading once, in order.

        Reading raises ``ItemFileError`` where the file is another one by then: never a part of each.
        """

    def names(self) -> list[str]:
        """Name the files."""

    def remove(self, name: str) -> None:
        """Remove a file; it need not be there."""

    def uri(self, name: str) -> str:
        """Give the address of a file."""

    def close(self) -> None:
        """Give the connections back."""
