"""The service in this process, on a store."""

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from autotuner.web.access import Settings
from autotuner.web.app import create_app


def serving(store: str | Path, **settings: Any) -> TestClient:
    """Who asks it, under a name of its own."""
    return TestClient(create_app(Settings(store=str(store), **settings)), base_url="http://localhost")
