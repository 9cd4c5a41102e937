"""Fetch URLs, de-duplication keys and the scope of a crawl (pure).

Two values stand for one link. The **fetch URL** is what goes on the wire: the WHATWG serialisation without fragment and
credentials, otherwise as the page wrote it. The **key** is only compared: spellings that name the same resource by RFC 3986 section 6.2
or by a parameter that only tracks the visitor share one key. ada-url is the one parser; text is cut by hand only where it came out
of it. Does not decide whether a URL may be requested: that is the guard's.
"""

from __future__ import annotations

import re

from ada_url import idna_to_unicode, join_url, normalize_url

__all__ = ["MAX_URL_LENGTH", "canonical_url", "dedupe_key", "origin_of", "same_host"]

MAX_URL_LENGTH = 8192
"""Fetch URLs of links above this many characters are dropped: a reference could not cite them."""

_SCHEMES = ("http://", "https://")
_DEFAULT_PORTS = {"http": "80", "https": "443"}

_TRACKING = frozenset(
    # Parameters that name the visitor's way to the page, never the page: of the tools that define them.
    [
        *("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id"),  # Google Analytics
        *("utm_source_platform", "utm_creative_format", "utm_marketing_tactic"),
        *("gclid", "gclsrc", "dclid", "gbraid", "wbraid", "srsltid", "_ga", "_gl"),  # Google Ads, cross-domain linker
        *("fbclid", "igshid", "msclkid", "yclid", "ttclid", "twclid", "li_fat_id", "epik"),  # click ids of networks
        *("mc_cid", "mc_eid", "_hsenc", "_hsmi", "mkt_tok", "oly_anon_id", "oly_enc_id", "vero_id"),  # mailing tools
    ]
)
# Only names that no application uses for anything else: `sid`, `s` and `id` are ambiguous and stay.
_SESSION = frozenset(["jsessionid", "phpsessid", "sessionid", "session_id", "sessid", "cfid", "cftoken", "oscsid", "zenid"])
_ASP_SESSION = re.compile(r"aspsessionid[a-z]*")

# RFC 3986 section 2.3: escapes of unreserved characters are decoded, the hex digits of others are upper-cased. Escapes behind a stray
# percent sign stay as they are: decoding them would spell a new escape, and the key of a key would differ from the key.
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})|%[0-9A-Fa-f]?(?:%[0-9A-Fa-f]{2}){1,2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH_SESSION = re.compile(r"([^/;]*)((?:;[^/;]*)+)")


def canonical_url(text: str, base: str | None = None) -> str | None:
    """The fetch URL of ``text`` (resolved against ``base``), or None for what is no crawlable http(s) URL.

    Never raises; a lone surrogate is read as U+FFFD. Time is linear in the text.
    """
    try:
        href = normalize_url(text) if base is None else join_url(base, text)
    except ValueError:
        if text.isascii() or (scalars := _scalar_values(text)) == text:
            return None
        return canonical_url(scalars, base)
    return _fetch_form(href)


def _scalar_values(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _fetch_form(href: str) -> str | None:
    """Fragment and credentials cut from a serialisation; in one, a raw ``#`` or ``@`` before the path can be nothing else."""
    if not href.startswith(_SCHEMES):
        return None
    cut = href.find("#")
    if cut != -1:
        href = href[:cut]
    start = href.index("//") + 2
    end = href.index("/", start)
    if (at := href.rfind("@", start, end)) != -1:
        # Credentials in links would multiply pages and leave as headers.
        href = href[:start] + href[at + 1 :]
        end -= at + 1 - start
    if href.find("xn--", start, end) != -1 and not _names_decode(href[start:end]):
        return None
    return href


def _names_decode(authority: str) -> bool:
    """ada-url lets ``xn--`` labels pass that stand for no name; URL parsers differ on them, so they are refused here."""
    host = authority.partition(":")[0]
    return all(not label.startswith("xn--") or not idna_to_unicode(label).isascii() for label in host.split("."))


def dedupe_key(url: str) -> str:
    """The key under which a fetch URL counts as seen; never fetched. ``dedupe_key(dedupe_key(u)) == dedupe_key(u)``.

    Folds escapes of unreserved characters and the case of others, the root dot of the host, the order of parameters by name (values of one
    name keep theirs), empty pairs, and drops tracking and session parameters. Scheme, path, case and values are never reinterpreted.
    """
    # Escapes, queries, path parameters, a fragment, or a root dot behind the host: else a URL is its own key. Substrings are found sooner
    # than a pattern is.
    special = "%" in url or "?" in url or ";" in url or "#" in url
    if not special and "./" not in url and ".:" not in url and url[-1:] != ".":
        return url
    start = url.find("//") + 2
    address, _, query = url.partition("#")[0].partition("?")
    slash = address.find("/", start)
    if start == 1 or slash == -1:
        slash = len(address)
    host, path = address[:slash], address[slash:]
    if "." in host:
        host = _without_root_dot(host)
    if "%" in path:
        path = _PERCENT.sub(_decode_unreserved, path)
    if ";" in path:
        path = _PATH_SESSION.sub(_without_session, path)
    query = _query_key(query) if query else ""
    return f"{host}{path}?{query}" if query else host + path


def _without_root_dot(origin: str) -> str:
    name, colon, port = origin, "", ""
    if (at := origin.rfind(":")) > origin.rfind("]") and origin[at + 1 : at + 2].isdigit():
        name, colon, port = origin[:at], ":", origin[at + 1 :]
    bare = name.rstrip(".")
    return f"{bare}{colon}{port}" if not bare.endswith("/") else origin


def _decode_unreserved(match: re.Match[str]) -> str:
    digits = match[1]
    if digits is None:
        return match[0].upper()
    char = chr(int(digits, 16))
    return char if char in _UNRESERVED else match[0].upper()


def _is_session(name: str) -> bool:
    return name in _SESSION or _ASP_SESSION.fullmatch(name) is not None


def _without_session(match: re.Match[str]) -> str:
    segment, parameters = match[1], match[2]
    kept = [p for p in parameters[1:].split(";") if not ("=" in p and _is_session(p.partition("=")[0].lower()))]
    text = ";".join([segment, *kept])
    # What is left must not become a dot segment, which a parser would resolve: then the path would name another resource.
    return match[0] if text in (".", "..") else text


def _query_key(query: str) -> str:
    if "%" in query:
        query = _PERCENT.sub(_decode_unreserved, query)
    pairs = [(pair.partition("=")[0], pair) for pair in query.split("&") if pair]
    kept = [(name, pair) for name, pair in pairs if not ((lower := name.lower()) in _TRACKING or _is_session(lower))]
    kept.sort(key=_name_of)
    return "&".join([pair for _, pair in kept])


def _name_of(pair: tuple[str, str]) -> str:
    return pair[0]


def origin_of(url: str) -> str:
    """Scheme, host and port of a fetch URL, as written there (no default port)."""
    start = url.index("//") + 2
    end = len(url)
    for mark in "/?#":
        at = url.find(mark, start, end)
        if at != -1:
            end = at
    return url[:end]


def same_host(url: str, seed_url: str) -> bool:
    """Whether a fetch URL lies in the scope of the seed's.

    Without a port in the seed: the same host on the default port of either scheme. With one: the exact origin. A root dot does not make
    another host, since both spellings share a key.
    """
    origin, seed = origin_of(url), origin_of(seed_url)
    if origin == seed:
        return True
    if origin.endswith(".") or seed.endswith(".") or ".:" in origin or ".:" in seed:
        origin, seed = _without_root_dot(origin), _without_root_dot(seed)
    if origin == seed:
        return True
    host, seed_host = origin.partition("//")[2], seed.partition("//")[2]
    # A port stands in a serialisation only when it is not the scheme's default: equal authorities with one are other origins.
    return host == seed_host and _has_no_port(host)


def _has_no_port(authority: str) -> bool:
    return authority.rfind(":") <= authority.rfind("]")
