"""Whether a package's files are those that were exported. A package has a copy of this file: it imports nothing of
autotuner."""

import base64
import hashlib
import json
from pathlib import Path


def damaged(folder: Path) -> str | None:
    """The first file that is not what was exported, or is not there; None where all are."""
    try:
        metadata = json.loads((folder / "metadata.json").read_bytes())
        said = json.dumps(metadata["autotuner"], sort_keys=True).encode()
        contents = {"metadata.json": (said, metadata["autotuner-digest"])}
        for name, digest in metadata["digest"]["files"].items():
            contents[name] = ((folder / name).read_bytes() if (folder / name).is_file() else b"", digest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "metadata.json"
    for name, (content, digest) in contents.items():
        if digest_of(content) != digest:
            return name
    return None


def digest_of(content: bytes) -> str:
    """As Hugging Face's `kernels` writes it."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()
