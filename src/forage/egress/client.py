"""The guard as a transport and a client of httpx; the only module that imports it.

Everything that the two do is in ``transport`` and ``seam``; here they become classes of httpx.
"""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

import httpx

from forage.egress.answers import Resolver
from forage.egress.connector import Dialer
from forage.egress.policy import EgressPolicy
from forage.egress.seam import ClientCore
from forage.egress.session import DEFAULT_MAX_BODY_BYTES
from forage.egress.transport import BodyCore, TransportCore

__all__ = ["GuardedClient", "GuardedTransport", "guarded_client"]


class _GuardedBody(BodyCore, httpx.AsyncByteStream):
    library: ClassVar[ModuleType] = httpx


class GuardedTransport(TransportCore, httpx.AsyncBaseTransport):
    """A transport for httpx.AsyncClient that sends one hop under the guard. Runs on trio. Prefer `guarded_client`.

    It judges what reaches it, and two things never do. The raw text of a URL: httpx rewrites hostile spellings before, so rules about
    the text itself (U4 to U8) see httpx's version. And the chain of redirects: with ``follow_redirects=True`` each target is judged as a
    first URL, but downgrades, other hosts, loops and the headers that travel are then httpx's affair, as are its cookie jar,
    authentication and mounts. Header rules and the dropping of extensions hold here too.
    """

    library: ClassVar[ModuleType] = httpx
    body_class: ClassVar[type[BodyCore]] = _GuardedBody


class GuardedClient(ClientCore, httpx.AsyncClient):
    """An httpx.AsyncClient under the guard; made by `guarded_client`."""

    library: ClassVar[ModuleType] = httpx
    transport_class: ClassVar[type[TransportCore]] = GuardedTransport


def guarded_client(
    policy: EgressPolicy | None = None,
    *,
    resolver: Resolver | None = None,
    dialer: Dialer | None = None,
    headers: httpx._types.HeaderTypes | None = None,
    timeout: httpx._types.TimeoutTypes = 30.0,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
) -> GuardedClient:
    """A client to use with ``async with``, on trio. The methods are those of httpx.AsyncClient; so are the responses.

    Differences that the guard makes: URLs are judged as given, redirects are followed by the policy (``follow_redirects=True`` changes
    nothing), there are no cookies, authentication, proxies, mounts or environment, and extensions are dropped. ``cookies``, ``auth``,
    ``params``, ``base_url`` and ``event_hooks`` of the client cannot be set; ``params`` go with each request. A request's body is bytes,
    text, a form, files or an asynchronous iterable. Bodies are decoded within
    ``max_body_bytes``, whole or streamed. ``response.extensions["forage.capture"]`` holds the capture facts. ``timeout`` is httpx's:
    seconds to connect, and seconds between two blocks of the answer. Raises InvalidPolicyError naming the argument.
    """
    return GuardedClient(policy, resolver=resolver, dialer=dialer, headers=headers, timeout=timeout, max_body_bytes=max_body_bytes)
