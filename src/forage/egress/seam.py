"""The guard behind the client interface of httpx, for any library with that interface (httpx, httpx2).

Owns what a client adds to one hop: the raw text of the URL judged before the library's own URL class sees it, redirects followed by the
guard, and the response with its history. Nothing of the library that routes or remembers is used: no cookie jar, no authentication, no
proxies, no mounts, no environment, and no transport extensions of callers. No HTTP library is imported here (see ``transport``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from http.cookiejar import Cookie, CookieJar
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

import attrs
import trio

from forage.egress.answers import Resolver
from forage.egress.codings import ACCEPT_ENCODING
from forage.egress.connector import Dialer
from forage.egress.outgoing import encode_fields
from forage.egress.policy import EgressPolicy
from forage.egress.received import OpenExchange
from forage.egress.redirects import RedirectChain, forwarded_headers, judge_redirect
from forage.egress.rules import JudgedUrl, judge_url
from forage.egress.session import DEFAULT_MAX_BODY_BYTES
from forage.egress.transport import BodyCore, TransportCore, check_timeout, fields_of, read_body
from forage.egress.wire import Wire
from forage.errors import InvalidPolicyError

__all__ = ["ClientCore", "bind"]

_TARGET = "forage.target"
_DEFAULT = object()
_NO_COOKIES = "a guarded client keeps and sends no cookies of its own, send them as a header"


@attrs.frozen
class _Known:
    """The judgement of a request's URL, and the very URL object that it was made for."""

    target: JudgedUrl
    url: Any


class ClientCore:
    """First base of a subclass of the library's AsyncClient; see `GuardedClient`."""

    library: ClassVar[ModuleType]
    transport_class: ClassVar[type[TransportCore]]

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolver: Resolver | None = None,
        dialer: Dialer | None = None,
        wire: Wire | None = None,
        headers: Any = None,
        timeout: Any = 30.0,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    ) -> None:
        merged = self._with(self.library.Headers({"Accept-Encoding": ACCEPT_ENCODING}), headers)
        limits = self._limits(timeout)
        self._guard = self.transport_class(policy, resolver=resolver, dialer=dialer, wire=wire, max_body_bytes=max_body_bytes)
        super().__init__(transport=self._guard, headers=merged, timeout=limits, trust_env=False)  # type: ignore[call-arg]  # the library's
        self._no_cookies = self.library.Cookies(_NoCookies())

    @property
    def policy(self) -> EgressPolicy:
        """The policy under which this client sends."""
        return self._guard.session.policy

    # What the library would add to requests by itself is refused where it is given: a client that took it would leave it out in silence.

    @property
    def params(self) -> Any:
        """Empty, and can only be set so: give ``params`` with each request."""
        return self.library.QueryParams()

    @params.setter
    def params(self, value: Any) -> None:
        _refuse("params", value, "give them with each request")

    @property
    def auth(self) -> Any:
        """None, and can only be set so: send credentials as a header."""
        return None

    @auth.setter
    def auth(self, value: Any) -> None:
        _refuse("auth", value, "send credentials as a header")

    @property
    def cookies(self) -> Any:
        """An empty jar that takes nothing: send cookies as a header."""
        return self._no_cookies

    @cookies.setter
    def cookies(self, value: Any) -> None:
        _refuse("cookies", value, _NO_COOKIES)

    @property
    def event_hooks(self) -> Any:
        """No hooks, and none can be added: a hook could change what was judged."""
        return MappingProxyType({"request": (), "response": ()})

    @event_hooks.setter
    def event_hooks(self, value: Any) -> None:
        if any(dict(value or {}).values()):
            _refuse("event_hooks", value, "a hook could change what was judged")

    @property
    def base_url(self) -> Any:
        """Empty, and can only be set so: URLs are judged as given, whole."""
        return self.library.URL("")

    @base_url.setter
    def base_url(self, value: Any) -> None:
        _refuse("base_url", str(value), "URLs are judged as given, whole")

    @property
    def timeout(self) -> Any:
        """The library's Timeout, in seconds."""
        return self._timeout

    @timeout.setter
    def timeout(self, value: Any) -> None:
        self._timeout = self._limits(value)

    def _limits(self, timeout: Any) -> Any:
        """The library's Timeout for what it takes as one. Raises InvalidPolicyError."""
        try:
            limits = self.library.Timeout(timeout)
        except Exception as exc:
            raise InvalidPolicyError("timeout", "seconds, None or a Timeout of the library", got=timeout) from exc
        check_timeout(limits.as_dict())
        return limits

    def _with(self, merged: Any, headers: Any) -> Any:
        """``merged`` with the caller's headers. Raises InvalidPolicyError."""
        try:
            merged.update(headers)
        except Exception as exc:
            raise InvalidPolicyError("headers", "a mapping or pairs of names and values, text or bytes") from exc
        return merged

    def build_request(self, method: str, url: Any, **options: Any) -> Any:
        """A request for ``url``, whose raw text is judged here. Raises EgressDeniedError.

        ``params`` replace the query. Cookies are refused, extensions other than the timeout are dropped.
        """
        _refuse("cookies", options.pop("cookies", None), _NO_COOKIES)
        options.pop("extensions", None)  # an SNI override or another target would go around the judgement
        target = judge_url(url if isinstance(url, str) else str(url), self.policy)
        params = options.pop("params", None)
        if params is not None:
            query = str(self.library.QueryParams(params))
            target = judge_url(f"{target.url.partition('?')[0]}{'?' if query else ''}{query}", self.policy)
        return self._request(method, target, **options)

    def _request(self, method: str, target: JudgedUrl, *, headers: Any = None, timeout: Any = _DEFAULT, **content: Any) -> Any:
        merged = self._with(self.library.Headers(self.headers), headers)  # type: ignore[attr-defined]  # the library's
        encode_fields(fields_of(merged))  # refuses here already; what is replaced or left out later must be clean as well
        merged["Host"] = target.host_header
        limits = self.timeout if _is_default(timeout) else self._limits(timeout)
        request = self.library.Request(method, self._url_of(target), headers=merged, extensions={"timeout": limits.as_dict()}, **content)
        request.extensions[_TARGET] = _Known(target, request.url)
        return request

    def _url_of(self, target: JudgedUrl) -> Any:
        """The library's object for a judged URL. It is for show: what is dialled and sent is the judged URL itself."""
        try:
            url = self.library.URL(target.url)
            url.host  # noqa: B018 - decodes xn-- labels, and raises for those that WHATWG allows and IDNA 2008 does not
            return url
        except (self.library.InvalidURL, UnicodeError):
            # Also for names such as 1.2.3z4, which it takes for malformed IPv4. One letter percent-encoded is the same name to it.
            letter = next(c for c in target.host if c.isalpha())
            return self.library.URL(target.url.replace(target.host, target.host.replace(letter, f"%{ord(letter):02X}", 1), 1))

    async def send(self, request: Any, *, stream: bool = False, auth: Any = None, follow_redirects: Any = None) -> Any:
        """Send a request and follow its redirects by the policy; ``follow_redirects=False`` gives the first answer as it is.

        ``response.request`` is the last hop and ``response.history`` the hops before it, without bodies. Raises EgressDeniedError;
        EgressUnreachableError also for a protocol failure before a head; FetchError (INCOMPLETE_BODY, PROTOCOL, DECODE_ERROR) and
        ResponseTooLargeError for the body; the library's own exceptions for timeouts only.
        """
        if self.is_closed:  # type: ignore[attr-defined]  # the library's
            raise RuntimeError("the client has been closed")
        if auth is not None and not _is_default(auth):
            _refuse("auth", auth, "send credentials as a header")
        begun = trio.current_time()
        body = await read_body(request, self._guard.max_body_bytes)
        headers: Sequence[tuple[str, str]] = fields_of(request.headers)
        chain = RedirectChain.begin(self._target_of(request), self.policy, request.method)
        history: list[Any] = []
        while True:
            opened = await self._guard.begin(request, chain.current, headers, body)
            try:
                redirect = None if follow_redirects is False else judge_redirect(chain, opened.head)
                if redirect is None:
                    return await self._final(opened, request, history, stream=stream, begun=begun)
                await opened.drain()
                history.append(self._noted(self._guard.bodied(opened, request, b""), history, begun))
                opened.close()
                if redirect.repeats:
                    await self._guard.session.judge(redirect.target)
                    redirect.refuse_repeat()
            except BaseException:
                opened.close()
                raise
            headers = forwarded_headers(headers, redirect)
            body = b"" if redirect.drop_body else body
            chain = redirect.chain
            request = self._next_request(request, chain, headers, body)

    async def _final(self, opened: OpenExchange, request: Any, history: list[Any], *, stream: bool, begun: float) -> Any:
        if stream:
            return self._noted(self._guard.streamed(opened, request), history, begun)
        response = await self._guard.whole(opened, request)
        opened.close()
        return self._noted(response, history, begun)

    def _noted(self, response: Any, history: list[Any], begun: float) -> Any:
        response.history = list(history)
        response.default_encoding = self._default_encoding  # type: ignore[attr-defined]  # the library's
        response.elapsed = timedelta(seconds=trio.current_time() - begun)
        return response

    def _target_of(self, request: Any) -> JudgedUrl:
        known = request.extensions.get(_TARGET)
        if isinstance(known, _Known) and known.url is request.url:
            return known.target
        return judge_url(str(request.url), self.policy)

    def _next_request(self, request: Any, chain: RedirectChain, headers: Sequence[tuple[str, str]], body: bytes) -> Any:
        target = chain.current
        following = self.library.Request(chain.method, self._url_of(target), headers=list(headers), content=body or None)
        following.headers["Host"] = target.host_header
        following.extensions = {**request.extensions, _TARGET: _Known(target, following.url)}
        return following


class _NoCookies(CookieJar):
    """A jar that takes nothing, by whatever method of the library it is put in."""

    def set_cookie(self, cookie: Cookie) -> None:
        raise InvalidPolicyError("cookies", f"nothing: {_NO_COOKIES}")


def _refuse(field: str, value: object, why: str) -> None:
    """Raises InvalidPolicyError for anything but nothing."""
    if value is not None and value != "" and value != () and value != {} and value != []:
        raise InvalidPolicyError(field, f"nothing: {why}")


def _is_default(option: object) -> bool:
    return option is _DEFAULT or type(option).__name__ == "UseClientDefault"  # the library does not export its class


def bind(library: ModuleType) -> tuple[type[Any], type[Any]]:
    """Transport and client classes over another library with httpx's interface, such as httpx2."""
    body = type("GuardedBody", (BodyCore, library.AsyncByteStream), {"library": library})
    transport = type("GuardedTransport", (TransportCore, library.AsyncBaseTransport), {"library": library, "body_class": body})
    client = type("GuardedClient", (ClientCore, library.AsyncClient), {"library": library, "transport_class": transport})
    return transport, client
