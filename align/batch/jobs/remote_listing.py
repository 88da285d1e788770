"""What object storage says of its objects without their content: which there are, and their state."""

from __future__ import annotations

import re

from align.remote.remote_files import remote_url, storage_errors, storage_of

_STATE = ("ETag", "etag", "md5Hash", "size", "LastModified", "mtime", "created")
_USER = re.compile(r"^([a-z][a-z0-9+.-]+:/{1,2})[^/@]*@")


def remote_names(pattern: str) -> list[str]:
    """The URLs of all objects and folders that a URL with `*` fits; raises what opening one raises."""
    url = remote_url(pattern) or pattern
    with storage_errors(url):
        storage, key = storage_of(url)
        scheme = url.partition("://")[0]
        return sorted(f"{scheme}://{str(name).lstrip('/')}" for name in storage.glob(key))


def remote_state(url: str) -> list[str]:
    """Name, ETag, size and time of an object, or of all objects of a folder, as far as the storage tells them."""
    with storage_errors(url):
        storage, key = storage_of(url)
        found = storage.find(key, detail=True) or {key: storage.info(key)}
        return [
            f"{name} {' '.join(str(info[field]) for field in _STATE if field in info)}"
            for name, info in sorted(found.items())
        ]


def without_secrets(path: str) -> str:
    """A URL without the user, the password and the query that it may hold; any other path as it is.

    >>> without_secrets("https://me:word@host/a.npz?token=1")
    'https://host/a.npz'
    """
    if remote_url(path) is None:
        return path
    return _USER.sub(r"\1", path).partition("?")[0]
