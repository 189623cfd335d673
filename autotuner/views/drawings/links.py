"""Where the pages are. In a page that is saved as one file most links lead nowhere, and are left out."""

from collections.abc import Collection, Mapping
from urllib.parse import quote, urlencode


class Links:
    """The links of a server's pages."""

    def study(self, study: str, page: str = "", **query: str | int) -> str | None:
        """A page of a study; None for a name that no address can have."""
        if "/" in study or study in (".", ".."):
            return None
        path = "/studies/" + "/".join(quote(part, safe="") for part in (study, page) if part)
        return f"{path}?{urlencode(query)}" if query else path

    def trial(self, study: str, number: int) -> str | None:
        """The page of a trial."""
        base = self.study(study)
        return None if base is None else f"{base}/trials/{number}"

    def cause(self, study: str, code: str) -> str | None:
        """Where a trial that was rejected for this cause is put into words."""
        return self.study(study, "rejects", cause=code)


LINKS = Links()
"""Those of every server."""


class SavedLinks(Links):
    """The links of one study's saved page: to its own sections, and to the trials that it holds."""

    def __init__(self, trials: Collection[int], causes: Mapping[str, int]) -> None:
        """`causes`: the trial that the page has of each cause of rejects."""
        self._trials, self._causes = {*trials}, causes

    def study(self, study: str, page: str = "", **query: str | int) -> str | None:
        """A section of the page."""
        del study, query
        return f"#at-{page}" if page else "#answer"

    def trial(self, study: str, number: int) -> str | None:
        """The trial's section, where the page holds it."""
        del study
        return f"#trial-{number}" if number in self._trials else None

    def cause(self, study: str, code: str) -> str | None:
        """The section of that cause's trial."""
        return self.trial(study, self._causes[code]) if code in self._causes else None
