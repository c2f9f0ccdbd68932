"""Writes what `nsys export --type sqlite` makes of one process of a job of tp 2 x dp 2, by the schemas of Nsight Systems and NCCL.

    python3 nsys.py FILE RANK [form=json|binary|unsized|late|none] [pid=N] [page=BYTES] [rows=N] [journal=MODE] [also=RANK]

Forms: payloads as JSON or as bytes; NCCL before 2.19, which has no payload; a recording without the creation of communicators, by NCCL
before 2.25, which names none; no NCCL. With `also` the process is that rank of the world as well. Each of `rows` is a range of a user with a text of up to 9000 bytes.
"""

import json
import pathlib
import sqlite3
import struct
import sys

COMMUNICATOR, SIZE, PEER = "NCCL communicator ID", "Message size [bytes]", "Peer rank"
UINT64, INT, SIZE_T = 18, 5, 22
STATIC = 1 << 24
WORLD, TP, DP = 0xBEE5_0000_0000_0001, 0x7E57_0000_0000_0002, 0xD900_0000_0000_0004

file, rank = sys.argv[1], int(sys.argv[2])
options = dict(word.split("=") for word in sys.argv[3:])
form, pid, rows = options.get("form", "json"), int(options.get("pid", 100 + rank)), int(options.get("rows", 0))
late = form == "late"

# Schema, its fields, and the structure of each.
CREATED = [(COMMUNICATOR, UINT64), ("No. of ranks", INT), ("Rank", INT), ("CUDA device", INT)]
SIZED = [(COMMUNICATOR, UINT64), (SIZE, SIZE_T)]
SCHEMAS = {
    "CommInitRankConfig": (11, CREATED),
    "AllGather": (4, SIZED),
    "ReduceScatter": (7, SIZED + [("Reduction operation", STATIC + 24)]),
    "AllReduce": (5, SIZED + [("Reduction operation", STATIC + 24)]),
    "Send": (9, SIZED + [(PEER, INT)]),
    "Recv": (10, SIZED + [(PEER, INT)]),
    "PutSignal": (21, SIZED + [(PEER, INT)]),
    "GroupStart": (None, []),
}
tp, dp = TP + rank // 2, DP + rank % 2
ranges = [("CommInitRankConfig", [WORLD, 4, rank, 0]), ("CommInitRankConfig", [tp, 2, rank % 2, 0])]
ranges += [("CommInitRankConfig", [dp, 2, rank // 2, 0])]
for step in range(3):
    ranges += [("AllGather", [tp, 65536])] * 2 + [("ReduceScatter", [tp, 65536, 0]), ("AllReduce", [dp, 1_000_000, 0])]
    ranges += [("GroupStart", []), ("Send" if rank < 2 else "Recv", [dp, 16384, 1 - rank // 2]), ("AllReduce", [WORLD, 4, 0])]
ranges += [("PutSignal", [dp, 64, 0])]
ranges += [("CommInitRankConfig", [WORLD, 4, int(options["also"]), 0])] if "also" in options else []
if late:
    ranges = [(name, values[1:]) for name, values in ranges if not name.startswith("Comm")]


def fields(name):
    listed = SCHEMAS[name][1][1 if late else 0:]
    return [("Bytes" if late and name in ("Send", "Recv") and field == SIZE else field, kind) for field, kind in listed]


def packed(name, values):
    body = b"".join(struct.pack("<Q" if kind in (UINT64, SIZE_T) else "<I", value) for (_, kind), value in zip(fields(name), values))
    body += bytes(-len(body) % 8)
    return struct.pack("<IIIIQQ", 1, 0, STATIC + SCHEMAS[name][0], 0, len(body), 32 + len(body)) + body


pathlib.Path(file).unlink(missing_ok=True)
database = sqlite3.connect(file)
database.execute(f"PRAGMA page_size = {options.get('page', 4096)}")
database.execute(f"PRAGMA journal_mode = {options.get('journal', 'delete')}")
database.executescript(
    """
CREATE TABLE StringIds ( -- Consolidation of repetitive string values, each with its identifier.
    id INTEGER NOT NULL PRIMARY KEY, -- ID reference value.
    value TEXT -- String value.
);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER, value TEXT);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, flags INTEGER,
    type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER, [offset] INTEGER);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, -- Event start timestamp (ns).
    "end" INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
    endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL,
    uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData BLOB
);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER, shortName INTEGER);
"""
)
environment = f"HOME=/root;LOCAL_RANK=7;OMPI_COMM_WORLD_RANK={rank};TERM=xterm" if late else "HOME=/root;TERM=xterm"
for name, value in [("CpuCores", "96"), ("Hostname", f"node-{rank // 2}"), ("DeviceEnvironment", environment)]:
    database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'dev', ?, NULL, ?)", (name, value))
names = {name: number for number, name in enumerate(SCHEMAS, 40)}
for name, number in names.items():
    database.execute("INSERT INTO StringIds VALUES (?, ?)", (number, f"nccl{name}"))
    place = 0
    for index, (field, kind) in enumerate(fields(name)):
        row = (1, STATIC + (SCHEMAS[name][0] or 0), index, kind, field, place or None)
        database.execute("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, NULL, ?, ?, NULL, NULL, ?)", row)
        place += 8 if kind in (UINT64, SIZE_T) else 4
start, insert = 1_000_000_000, "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, NULL, NULL, ?, ?, NULL, ?, ?, NULL, NULL, 0.5, NULL, NULL, NULL, ?, ?, ?)"
thread = pid << 24 | 77
for number in range(rows):
    database.execute(insert, (start, start + 5, f"step {number} " + "x" * (number * 37 % 9000), thread, None, 0, None, None, None))
for number, (name, values) in enumerate([] if form == "none" else ranges):
    start += 1000
    text, encoded, shared, whole = None, None, None, None
    if values and form in ("json", "late"):
        encoded = json.dumps({field: value for (field, _), value in zip(fields(name), values)})
        if number % 2:
            shared = 100_000 + number
            database.execute("INSERT INTO StringIds VALUES (?, ?)", (shared, encoded))
            encoded = None
    elif values and form == "binary":
        whole = packed(name, values)
    row = (start, start + 900, None, thread, names[name], 1, shared, encoded, whole)
    database.execute(insert, row)
database.commit()
