"""Result files that are a list of entries, made one after the other; what is there already is not made again.

An entry counts as there if the code that made it, and whatever else the benchmark asks for, is the same. The file is
written whole after every entry, so that a benchmark that was stopped goes on where it was.
"""

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.result_file import one_writer, read_results, write_results
from feature_store.errors import InputError

Entry = dict[str, Any]


class Entries:
    """The entries of one result file.

    Attributes:
        content: of the file, to which a benchmark adds what is true of all entries (machine, settings). Of two that
            write one file, the last says what stands beside the entries.
    """

    def __init__(
        self, path: Path, file_format: str, key: Callable[[Mapping[str, Any]], Any],
        stands: Callable[[Mapping[str, Any], Mapping[str, Any]], bool],
    ) -> None:
        """Reads the file and leaves out the entries that have to be made again.

        Args:
            path: of the result file; may be missing.
            file_format: what its `format` must be.
            key: of an entry, what distinguishes it from all others and orders them.
            stands: of the file's earlier content and one of its entries, whether that entry is still valid.

        Raises:
            InputError: the file is no JSON, or of another format.
        """
        try:
            before: Any = read_results(path)
        except ValueError as error:
            raise InputError(f"--output: expected JSON, got {error} ({path}); name another file") from error
        if before is None:
            before = {"format": file_format, "entries": []}
        if not isinstance(before, dict) or before.get("format") != file_format:
            got = before.get("format") if isinstance(before, dict) else type(before).__name__
            raise InputError(f"--output: expected a file of format {file_format}, got {got} ({path}); "
                             "name another file")
        self._path, self._key, self._stands = path, key, stands
        self._made: list[Entry] = []
        self.content = {**before, "entries": [entry for entry in before["entries"] if stands(before, entry)]}

    def __len__(self) -> int:
        return len(self.content["entries"])

    def has(self, key: Hashable) -> bool:
        """Whether an entry of that key is there."""
        return any(self._key(entry) == key for entry in self.content["entries"])

    def add(self, *entries: Entry) -> None:
        """Adds the entries, and what another process has written to the file meanwhile, and writes it."""
        with one_writer(self._path):
            now = read_results(self._path) or {"entries": []}
            self._made += entries
            made = {self._key(entry) for entry in self._made}
            others = [one for one in now["entries"] if self._stands(now, one) and self._key(one) not in made]
            self.content["entries"] = sorted([*others, *self._made], key=self._key)
            write_results(self._path, self.content)


def made_by(code: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], bool]:
    """An entry stands if it says that code of this digest has made it."""
    return lambda _, entry: entry.get("code") == code
