"""Makes the files of src/forage/snapshots/data from a packaged copy of the indexes of the WHATWG Encoding Standard.

    npm install --ignore-scripts @exodus/bytes@1.16.0
    python tools/encoding_tables.py node_modules/@exodus/bytes

Needs Node. The package's own tests hold its tables against the standard's; tests/snapshots/test_encodings.py holds what is written
here against recorded digests. Each index becomes one text in pointer order (U+0000 where it has no entry), as UTF-16LE with
all low bytes before all high bytes, compressed by zlib: a third of the size of the plain form.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "src" / "forage" / "snapshots" / "data"

READER = """
import { pathToFileURL } from 'node:url'
const load = (path) => import(pathToFileURL(process.argv[1] + '/fallback/' + path).href)
const { getTable, sizes } = await load('multi-byte.table.js')
const { getEncoding } = await load('single-byte.js')
const labels = (await load('encoding.labels.js')).default
const out = { indexes: {}, single: {}, labels, ranges: getTable('gb18030-ranges') }
for (const name of Object.keys(sizes)) out.indexes[name] = Array.from(getTable(name))
for (const name of Object.keys(labels)) { try { out.single[name] = getEncoding(name) } catch {} }
console.log(JSON.stringify(out))
"""


def _character(entry: int) -> str:
    """One entry of the package's tables: a unit, a surrogate pair in one number, or nothing.

    The four Big5 pointers that stand for two characters are no part of the standard's index; the decoder knows them.
    """
    high, low = entry >> 16, entry & 0xFFFF
    if not high:
        return chr(entry)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)) if 0xD800 <= high < 0xDC00 else "\0"


def _upper(points: list[int]) -> str:
    """The upper half of a single-byte table; the package ends one where only Latin-1 follows."""
    return "".join(map(chr, [*points, *range(128 + len(points), 256)]))


def _pack(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return zlib.compress(units[::2] + units[1::2], 9)


def main(package: str) -> None:
    done = subprocess.run(["node", "--input-type=module", "-e", READER, package], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    for name, entries in found["indexes"].items():
        (DATA / f"{name}.bin").write_bytes(_pack("".join(map(_character, entries))))
    names = sorted(set(found["single"]) - {"iso-8859-8-i", "x-user-defined"})  # one is iso-8859-8, the other a rule
    (DATA / "single-byte.bin").write_bytes(_pack("".join(_upper(found["single"][name]) for name in names)))
    rows = [" ".join([name, *sorted({name, *labels} - {name})]) for name, labels in sorted(found["labels"].items())]
    (DATA / "labels.txt").write_text("\n".join(rows) + "\n", "utf-8")
    (DATA / "gb18030-ranges.txt").write_text("".join(f"{pointer} {point}\n" for pointer, point in found["ranges"]), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
