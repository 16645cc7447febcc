"""A git repository for a test."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def git(root: Path, *arguments: str) -> str:
    """Run git in a folder, and return what it prints."""
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    return subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True, text=True).stdout


def commit_all(root: Path) -> None:
    """Commit every file."""
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "all")
