"""What was received, and how to cite it: snapshots, references, records and stores.

Usable alone: nothing here loads the network, and names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.snapshots.building import build_snapshot as build_snapshot
    from forage.snapshots.building import rendered_snapshot as rendered_snapshot
    from forage.snapshots.encodings import Encoding as Encoding
    from forage.snapshots.encodings import find_encoding as find_encoding
    from forage.snapshots.filesystem import FilesystemSnapshotStore as FilesystemSnapshotStore
    from forage.snapshots.model import MAX_BODY_BYTES as MAX_BODY_BYTES
    from forage.snapshots.model import MAX_SOURCE_ID_UNITS as MAX_SOURCE_ID_UNITS
    from forage.snapshots.model import MAX_URL_UNITS as MAX_URL_UNITS
    from forage.snapshots.model import HashBasis as HashBasis
    from forage.snapshots.model import Snapshot as Snapshot
    from forage.snapshots.model import body_bytes as body_bytes
    from forage.snapshots.model import canonical_clone as canonical_clone
    from forage.snapshots.model import snapshot_hash_basis as snapshot_hash_basis
    from forage.snapshots.model import validate_snapshot as validate_snapshot
    from forage.snapshots.records import MAX_HISTORY_FILES as MAX_HISTORY_FILES
    from forage.snapshots.records import MAX_RECORD_BYTES as MAX_RECORD_BYTES
    from forage.snapshots.records import decode_record as decode_record
    from forage.snapshots.records import encode_record as encode_record
    from forage.snapshots.records import record_name as record_name
    from forage.snapshots.records import released_record_name as released_record_name
    from forage.snapshots.records import snapshot_of_members as snapshot_of_members
    from forage.snapshots.records import source_directory as source_directory
    from forage.snapshots.records import verify_record as verify_record
    from forage.snapshots.reference import Lookup as Lookup
    from forage.snapshots.reference import SourceRef as SourceRef
    from forage.snapshots.reference import build_source_ref as build_source_ref
    from forage.snapshots.reference import encode_uri_component as encode_uri_component
    from forage.snapshots.reference import envelope_json as envelope_json
    from forage.snapshots.reference import format_source_ref as format_source_ref
    from forage.snapshots.reference import identity_digest as identity_digest
    from forage.snapshots.reference import lookup_of as lookup_of
    from forage.snapshots.reference import parse_source_ref as parse_source_ref
    from forage.snapshots.reference import snapshot_digest as snapshot_digest
    from forage.snapshots.reference import validate_lookup as validate_lookup
    from forage.snapshots.retention import RetentionPlan as RetentionPlan
    from forage.snapshots.retention import plan_retention as plan_retention
    from forage.snapshots.retention import validate_prune as validate_prune
    from forage.snapshots.shells import looks_like_js_shell as looks_like_js_shell
    from forage.snapshots.store import ExactLookup as ExactLookup
    from forage.snapshots.store import FindKind as FindKind
    from forage.snapshots.store import FindResult as FindResult
    from forage.snapshots.store import Integrity as Integrity
    from forage.snapshots.store import MemorySnapshotStore as MemorySnapshotStore
    from forage.snapshots.store import Prunable as Prunable
    from forage.snapshots.store import PruneResult as PruneResult
    from forage.snapshots.store import Replay as Replay
    from forage.snapshots.store import ReplayFailure as ReplayFailure
    from forage.snapshots.store import Resolution as Resolution
    from forage.snapshots.store import ResolutionFailure as ResolutionFailure
    from forage.snapshots.store import SnapshotStore as SnapshotStore
    from forage.snapshots.store import replay_source as replay_source
    from forage.snapshots.store import resolve_source_ref as resolve_source_ref
    from forage.snapshots.text import DecodedText as DecodedText
    from forage.snapshots.text import charset_of as charset_of
    from forage.snapshots.text import decode_text_body as decode_text_body
    from forage.snapshots.text import decodes_quickly as decodes_quickly
    from forage.snapshots.text import is_textual as is_textual
    from forage.snapshots.witness import HeadKind as HeadKind
    from forage.snapshots.witness import HeadWitness as HeadWitness
    from forage.snapshots.witness import VerifiedHead as VerifiedHead
    from forage.snapshots.witness import WitnessOutcome as WitnessOutcome
    from forage.snapshots.witness import WitnessStore as WitnessStore
    from forage.snapshots.witness import compare_head_witness as compare_head_witness
    from forage.snapshots.witness import read_verified_head as read_verified_head

__getattr__, __dir__, __all__ = lazy_face(
    __name__,
    {
        "DecodedText": "forage.snapshots.text",
        "Encoding": "forage.snapshots.encodings",
        "ExactLookup": "forage.snapshots.store",
        "FilesystemSnapshotStore": "forage.snapshots.filesystem",
        "FindKind": "forage.snapshots.store",
        "FindResult": "forage.snapshots.store",
        "HashBasis": "forage.snapshots.model",
        "HeadKind": "forage.snapshots.witness",
        "HeadWitness": "forage.snapshots.witness",
        "Integrity": "forage.snapshots.store",
        "Lookup": "forage.snapshots.reference",
        "MAX_BODY_BYTES": "forage.snapshots.model",
        "MAX_HISTORY_FILES": "forage.snapshots.records",
        "MAX_RECORD_BYTES": "forage.snapshots.records",
        "MAX_SOURCE_ID_UNITS": "forage.snapshots.model",
        "MAX_URL_UNITS": "forage.snapshots.model",
        "MemorySnapshotStore": "forage.snapshots.store",
        "Prunable": "forage.snapshots.store",
        "PruneResult": "forage.snapshots.store",
        "Replay": "forage.snapshots.store",
        "ReplayFailure": "forage.snapshots.store",
        "Resolution": "forage.snapshots.store",
        "ResolutionFailure": "forage.snapshots.store",
        "RetentionPlan": "forage.snapshots.retention",
        "Snapshot": "forage.snapshots.model",
        "SnapshotStore": "forage.snapshots.store",
        "SourceRef": "forage.snapshots.reference",
        "VerifiedHead": "forage.snapshots.witness",
        "WitnessOutcome": "forage.snapshots.witness",
        "WitnessStore": "forage.snapshots.witness",
        "body_bytes": "forage.snapshots.model",
        "build_snapshot": "forage.snapshots.building",
        "build_source_ref": "forage.snapshots.reference",
        "canonical_clone": "forage.snapshots.model",
        "charset_of": "forage.snapshots.text",
        "compare_head_witness": "forage.snapshots.witness",
        "decode_record": "forage.snapshots.records",
        "decode_text_body": "forage.snapshots.text",
        "decodes_quickly": "forage.snapshots.text",
        "encode_record": "forage.snapshots.records",
        "encode_uri_component": "forage.snapshots.reference",
        "envelope_json": "forage.snapshots.reference",
        "find_encoding": "forage.snapshots.encodings",
        "format_source_ref": "forage.snapshots.reference",
        "identity_digest": "forage.snapshots.reference",
        "is_textual": "forage.snapshots.text",
        "looks_like_js_shell": "forage.snapshots.shells",
        "lookup_of": "forage.snapshots.reference",
        "parse_source_ref": "forage.snapshots.reference",
        "plan_retention": "forage.snapshots.retention",
        "read_verified_head": "forage.snapshots.witness",
        "record_name": "forage.snapshots.records",
        "released_record_name": "forage.snapshots.records",
        "rendered_snapshot": "forage.snapshots.building",
        "replay_source": "forage.snapshots.store",
        "resolve_source_ref": "forage.snapshots.store",
        "snapshot_digest": "forage.snapshots.reference",
        "snapshot_hash_basis": "forage.snapshots.model",
        "snapshot_of_members": "forage.snapshots.records",
        "source_directory": "forage.snapshots.records",
        "validate_lookup": "forage.snapshots.reference",
        "validate_prune": "forage.snapshots.retention",
        "validate_snapshot": "forage.snapshots.model",
        "verify_record": "forage.snapshots.records",
    },
)
