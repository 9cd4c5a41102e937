"""Every public exception, and the codes that stored records and callers rely on.

Classes follow what a caller does next; the reason is ``.code`` (or ``.kind``, ``.reason``), a string enumeration whose
values are shared with the other implementations of these formats. Messages name a host or a field; they never carry
credentials, query strings, paths on disk or bytes of a body.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "BrowserError",
    "BrowserErrorCode",
    "BrowserLostError",
    "BrowserMissingError",
    "CaptureError",
    "EgressCode",
    "EgressDeniedError",
    "EgressError",
    "EgressUnreachableError",
    "FetchError",
    "FetchErrorKind",
    "ForageError",
    "HistoryFullError",
    "InvalidPolicyError",
    "InvalidSnapshotError",
    "ResponseTooLargeError",
    "SnapshotCorruptError",
    "SnapshotStoreError",
    "SourceRefError",
    "SourceRefErrorCode",
    "StoreBusyError",
    "StoreErrorCode",
    "StoreErrorReason",
]


class ForageError(Exception):
    """Root of everything that forage raises on purpose."""


class InvalidPolicyError(ForageError, ValueError):
    """A policy, seed or option is wrong; nothing was started.

    ``field`` names the argument, ``accepted`` says in words which values it takes, ``got`` is the value (None: it is not shown).
    """

    def __init__(self, field: str, accepted: str, *, got: object = None) -> None:
        self.field = field
        self.accepted = accepted
        self.got = got
        shown = "" if got is None else f", not {_short(got)}"
        super().__init__(f"{field}: takes {accepted}{shown}")


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class EgressCode(StrEnum):
    """Why the guard refused; see the egress policy, in the order in which its rules decide."""

    INVALID_URL = "INVALID_URL"
    INVALID_SCHEME = "INVALID_SCHEME"
    CREDENTIALS = "CREDENTIALS"
    INVALID_HOST = "INVALID_HOST"
    DENIED_HOST = "DENIED_HOST"
    INVALID_PORT = "INVALID_PORT"
    INVALID_HEADER = "INVALID_HEADER"
    DNS_FAILURE = "DNS_FAILURE"
    DENIED_ADDRESS = "DENIED_ADDRESS"
    REDIRECT_INVALID = "REDIRECT_INVALID"
    REDIRECT_LIMIT = "REDIRECT_LIMIT"
    REDIRECT_LOOP = "REDIRECT_LOOP"
    REDIRECT_CROSS_HOST = "REDIRECT_CROSS_HOST"
    REDIRECT_DOWNGRADE = "REDIRECT_DOWNGRADE"
    CONNECT_FAILED = "CONNECT_FAILED"


class EgressError(ForageError):
    """The guard did not let a request through, or could not reach what it had judged.

    ``code`` is the reason, ``host`` the host without userinfo, path or query (None when none could be read), ``block`` the
    address block that matched (DENIED_ADDRESS only), ``rule`` the rule of the policy, ``target`` the refused redirect target
    (its origin and path, never its query) where there is one.
    """

    _said = "egress refused"

    def __init__(
        self,
        code: EgressCode,
        host: str | None = None,
        *,
        block: str | None = None,
        rule: str | None = None,
        detail: str | None = None,
        target: str | None = None,
    ) -> None:
        self.code = code
        self.host = host
        self.block = block
        self.rule = rule
        self.detail = detail
        self.target = target
        where = "" if host is None else f" for {host}"
        inside = "" if block is None else f" (in {block})"
        more = "" if detail is None else f": {detail}"
        super().__init__(f"{self._said}, {code}{where}{inside}{more}")


class EgressDeniedError(EgressError):
    """Policy says no. Asking again gives the same answer, so it is never retried."""


class EgressUnreachableError(EgressError):
    """DNS_FAILURE or CONNECT_FAILED: nothing was denied, but there was no connection. May be retried.

    Connect, handshake, name-check and protocol failures before a response head share one code, so that error texts do not
    map the inside of a network.
    """

    _said = "could not be reached"


class FetchErrorKind(StrEnum):
    """How one acquisition ended without a snapshot."""

    INVALID_CONFIG = "invalid-config"
    INVALID_URL = "invalid-url"
    ROBOTS_DENIED = "robots-denied"
    ROBOTS_UNREACHABLE = "robots-unreachable"
    CRAWL_DELAY_TOO_LONG = "crawl-delay-too-long"
    HOST_PAUSED = "host-paused"
    TIMEOUT = "timeout"
    NETWORK = "network"
    PROTOCOL = "protocol"
    INCOMPLETE_BODY = "incomplete-body"
    DECODE_ERROR = "decode-error"
    EGRESS_DENIED = "egress-denied"
    OFF_SCOPE = "off-scope"
    HTTP_ERROR = "http-error"
    RESPONSE_TOO_LARGE = "response-too-large"
    TOO_MANY_REDIRECTS = "too-many-redirects"
    NO_SNAPSHOT = "no-snapshot"
    SNAPSHOT_CORRUPT = "snapshot-corrupt"
    SNAPSHOT_STORE_ERROR = "snapshot-store-error"


class FetchError(ForageError):
    """One acquisition failed; ``kind`` says how, ``status`` is the HTTP status where that is the reason."""

    def __init__(self, kind: FetchErrorKind, message: str, *, status: int | None = None) -> None:
        self.kind = kind
        self.status = status
        super().__init__(message)

    @property
    def code(self) -> FetchErrorKind:
        """The kind, under the name that every error of forage has."""
        return self.kind


class ResponseTooLargeError(FetchError):
    """A body, declared, received, decoded, rendered or stored, is above ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(FetchErrorKind.RESPONSE_TOO_LARGE, f"response is larger than {limit} bytes")


class InvalidSnapshotError(ForageError, TypeError):
    """A snapshot, lookup or store option breaks the durable form; nothing was read or written."""


class SourceRefErrorCode(StrEnum):
    """Why a reference did not resolve."""

    INVALID_REFERENCE = "invalid-reference"
    SNAPSHOT_NOT_FOUND = "snapshot-not-found"
    SNAPSHOT_MISMATCH = "snapshot-mismatch"
    SNAPSHOT_CORRUPT = "snapshot-corrupt"
    SNAPSHOT_STORE_ERROR = "snapshot-store-error"


class SourceRefError(ForageError):
    """A source reference did not resolve; ``code`` says why."""

    def __init__(self, code: SourceRefErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)


class StoreErrorCode(StrEnum):
    """Whether the stored facts are bad, or the store could not be used."""

    SNAPSHOT_CORRUPT = "snapshot-corrupt"
    SNAPSHOT_STORE_ERROR = "snapshot-store-error"
    HISTORY_FULL = "history-full"


class StoreErrorReason(StrEnum):
    """The cause below a store error code; the first six belong to snapshot-corrupt."""

    MALFORMED_RECORD = "malformed-record"
    INVALID_RECORD = "invalid-record"
    FOREIGN_SOURCE_RECORD = "foreign-source-record"
    RECORD_IDENTITY_MISMATCH = "record-identity-mismatch"
    NON_REGULAR_ENTRY = "non-regular-entry"
    INVALID_IDENTITY_INDEX = "invalid-identity-index"
    RECORD_DISAPPEARED = "record-disappeared"
    READ_RACED = "read-raced"
    READ_FAILED = "read-failed"
    READ_LIMIT = "read-limit"
    STORE_BUSY = "store-busy"
    WRITE_FAILED = "write-failed"
    CEILING_CHANGED = "ceiling-changed"


class SnapshotStoreError(ForageError):
    """A store could not answer or write; ``code`` and ``reason`` say why. A failed put leaves no half-written record."""

    def __init__(self, code: StoreErrorCode, reason: StoreErrorReason | None, message: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(message)


class StoreBusyError(SnapshotStoreError):
    """Another writer held ``source.lock`` for longer than the wait; trying again later is right."""

    def __init__(self, message: str = "another writer holds the source lock; try again later") -> None:
        super().__init__(StoreErrorCode.SNAPSHOT_STORE_ERROR, StoreErrorReason.STORE_BUSY, message)


class SnapshotCorruptError(SnapshotStoreError):
    """A stored record does not prove what it claims; nothing of the history is returned."""

    def __init__(self, reason: StoreErrorReason, message: str) -> None:
        super().__init__(StoreErrorCode.SNAPSHOT_CORRUPT, reason, message)


class HistoryFullError(SnapshotStoreError):
    """The source holds ``max_history_files`` records; prune it or give the store a higher ceiling in a new root."""

    def __init__(self, max_history_files: int) -> None:
        self.max_history_files = max_history_files
        super().__init__(
            StoreErrorCode.HISTORY_FULL, None, f"snapshot history is full: {max_history_files} records; prune the source first"
        )


class BrowserErrorCode(StrEnum):
    """Why a browser did not do what it was asked for."""

    MISSING = "browser-missing"
    START_FAILED = "browser-start-failed"
    LOST = "browser-lost"
    REFUSED = "browser-refused"
    NO_ANSWER = "browser-no-answer"
    PAGE_GONE = "browser-page-gone"
    NO_DOCUMENT = "browser-no-document"
    LEFT_BEHIND = "browser-left-behind"
    FAILED = "browser-failed"


class BrowserError(ForageError):
    """The browser could not be found, started or spoken to; ``code`` says which."""

    def __init__(self, message: str, *, code: BrowserErrorCode = BrowserErrorCode.FAILED) -> None:
        self.code = code
        super().__init__(message)


class BrowserMissingError(BrowserError):
    """No browser is installed, or not where it was said to be. Nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=BrowserErrorCode.MISSING)


class BrowserLostError(BrowserError):
    """The browser ended, or stopped speaking, while it was in use. A new one may be started."""

    def __init__(self, message: str = "the browser has ended") -> None:
        super().__init__(message, code=BrowserErrorCode.LOST)


class CaptureError(ForageError):
    """A capture of the mirror could not be fetched or kept."""
