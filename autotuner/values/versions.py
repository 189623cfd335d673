"""The installed versions that a number depends on."""

from importlib import metadata


def version_of(package: str) -> str:
    """The installed version of a package; "absent" without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
