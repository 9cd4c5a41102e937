"""May this connection be made, and to exactly which address: the guard, its resolver and its wire.

Usable alone: the judging half is pure, and nothing here loads a crawler, a store, a browser or an HTML parser. Names load on first use,
the HTTP client only when a name that needs it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.egress.addresses import AddressRules as AddressRules
    from forage.egress.addresses import EgressAddress as EgressAddress
    from forage.egress.addresses import classify_address as classify_address
    from forage.egress.answers import DnsAnswers as DnsAnswers
    from forage.egress.answers import Resolver as Resolver
    from forage.egress.client import GuardedTransport as GuardedTransport
    from forage.egress.client import guarded_client as guarded_client
    from forage.egress.codings import ACCEPT_ENCODING as ACCEPT_ENCODING
    from forage.egress.connector import Dialer as Dialer
    from forage.egress.connector import PinnedConnector as PinnedConnector
    from forage.egress.connector import SocketDialer as SocketDialer
    from forage.egress.connector import dial_order as dial_order
    from forage.egress.evaluate import EgressTarget as EgressTarget
    from forage.egress.evaluate import evaluate_url as evaluate_url
    from forage.egress.facts import CaptureFacts as CaptureFacts
    from forage.egress.facts import TlsFacts as TlsFacts
    from forage.egress.outgoing import is_reserved as is_reserved
    from forage.egress.policy import EgressPolicy as EgressPolicy
    from forage.egress.proxy import Proxy as Proxy
    from forage.egress.proxy import ProxyEvent as ProxyEvent
    from forage.egress.proxy import ProxyLimits as ProxyLimits
    from forage.egress.proxy import ProxyRules as ProxyRules
    from forage.egress.proxy import deny_all as deny_all
    from forage.egress.proxy import only as only
    from forage.egress.proxy import open_proxy as open_proxy
    from forage.egress.received import OpenExchange as OpenExchange
    from forage.egress.received import Received as Received
    from forage.egress.redirects import Redirect as Redirect
    from forage.egress.redirects import RedirectChain as RedirectChain
    from forage.egress.redirects import forwarded_headers as forwarded_headers
    from forage.egress.redirects import judge_redirect as judge_redirect
    from forage.egress.resolver import CachingResolver as CachingResolver
    from forage.egress.resolver import DnsResolver as DnsResolver
    from forage.egress.rules import Judge as Judge
    from forage.egress.rules import JudgedUrl as JudgedUrl
    from forage.egress.rules import judge_answers as judge_answers
    from forage.egress.rules import judge_url as judge_url
    from forage.egress.session import DEFAULT_MAX_BODY_BYTES as DEFAULT_MAX_BODY_BYTES
    from forage.egress.session import EgressSession as EgressSession
    from forage.egress.wire import Wire as Wire

__getattr__, __dir__, __all__ = lazy_face(
    __name__,
    {
        "ACCEPT_ENCODING": "forage.egress.codings",
        "AddressRules": "forage.egress.addresses",
        "CachingResolver": "forage.egress.resolver",
        "CaptureFacts": "forage.egress.facts",
        "DEFAULT_MAX_BODY_BYTES": "forage.egress.session",
        "Dialer": "forage.egress.connector",
        "DnsAnswers": "forage.egress.answers",
        "DnsResolver": "forage.egress.resolver",
        "EgressAddress": "forage.egress.addresses",
        "EgressPolicy": "forage.egress.policy",
        "EgressSession": "forage.egress.session",
        "EgressTarget": "forage.egress.evaluate",
        "GuardedTransport": "forage.egress.client",
        "Judge": "forage.egress.rules",
        "JudgedUrl": "forage.egress.rules",
        "OpenExchange": "forage.egress.received",
        "PinnedConnector": "forage.egress.connector",
        "Proxy": "forage.egress.proxy",
        "ProxyEvent": "forage.egress.proxy",
        "ProxyLimits": "forage.egress.proxy",
        "ProxyRules": "forage.egress.proxy",
        "Received": "forage.egress.received",
        "Redirect": "forage.egress.redirects",
        "RedirectChain": "forage.egress.redirects",
        "Resolver": "forage.egress.answers",
        "SocketDialer": "forage.egress.connector",
        "TlsFacts": "forage.egress.facts",
        "Wire": "forage.egress.wire",
        "classify_address": "forage.egress.addresses",
        "deny_all": "forage.egress.proxy",
        "dial_order": "forage.egress.connector",
        "evaluate_url": "forage.egress.evaluate",
        "forwarded_headers": "forage.egress.redirects",
        "guarded_client": "forage.egress.client",
        "is_reserved": "forage.egress.outgoing",
        "judge_answers": "forage.egress.rules",
        "judge_redirect": "forage.egress.redirects",
        "judge_url": "forage.egress.rules",
        "only": "forage.egress.proxy",
        "open_proxy": "forage.egress.proxy",
    },
)
