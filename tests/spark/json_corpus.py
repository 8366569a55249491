"""JSON payloads of all kinds, well-formed and not, and the schemas under which they are read."""

from __future__ import annotations

import json
from typing import Final

TIMES: Final = (
    *("2026-01-02T03:04:05", "2026-01-02 03:04:05", "2026-01-02", "2026-01", "2026", "2026-1-2 3:4:5"),
    *("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05+01:00"),
    *("2026-01-02T03:04:05+0100", "2026-01-02 03:04:05 Europe/Berlin", "2026-01-02T03:04", "2026-01-02T03"),
    *(" 2026-01-02 ", "2026-02-30", "1700000000", "x", "", "0001-01-01", "2026-01-02T24:00:00"),
    *("2026-01-02T03:04:05.1", "2026-01-02T03:04:05.", "2026-01-02T03:04:05UTC", "1582-10-10"),
    *("2026-01-02T03:04:05 +1", "2026-01-02T", "2026-01-02T03:04:60", "2026-01-02T03:04:05+18:00"),
    *("2026-01-02T03:04:05+19:00", "2026-01-02x", "2026-01-02T03:04:05 Nowhere/Land", "2026-13-01"),
)
NUMBERS: Final = (
    *("0", "1", "-1", "127", "128", "300", "32768", "2147483648", "9223372036854775807"),
    *(
        "9223372036854775808",
        "2.0",
        "1.5",
        "1e3",
        "0.1",
        "12.34",
        "12.345",
        "123456789.12",
        "0.005",
        "-0.005",
    ),
    *("16777217", "1e60", "1e999", "NaN", "-Infinity", "1700000000", "99999999999999"),
)
TEXTS: Final = (
    *("x", "5", "1.5", "12.34", "12.345", "1e3", " 1 ", "1,000.5", "NaN", "Infinity", "-INF", "inf", "true"),
    *("", "YWJj", "@@", "YWI=", "YWI", "ü", "a\nb\u0000"),
)
VALUES: Final = (
    *(f'{{"v":{each}}}' for each in NUMBERS),
    *(f'{{"v":{json.dumps(each)}}}' for each in (*TEXTS, *TIMES)),
    *('{"v":true}', '{"v":null}', '{"v":{}}', '{"v":[]}', "{}", '{"V":1}', '{"v":1,"v":2}'),
)
NESTED: Final = (
    *('{"s":{"a":1,"b":"2026-01-02T03:04:05"}}', '{"s":{"a":"x","b":"2026-01-02"}}', '{"s":5,"l":[1]}'),
    *('{"s":[1],"l":[1]}', '{"l":[1,"x",3]}', '{"l":[1,null,3]}', '{"l":5}', '{"m":{"a":1,"b":null}}'),
    *(
        '{"m":{"a":1,"b":"x"}}',
        '{"m":[1]}',
        '{"ls":[{"a":1,"b":"2026-01-02"},{"a":2}]}',
        '{"ls":[{"a":1},5]}',
    ),
    *('{"ls":[{"a":"x","b":"2026-01-02"},{"a":2}]}', '{"s":{}}', '{"s":null,"l":null,"m":null}'),
    *('{"ls":[null,{}]}', '{"ll":[[1,2],[],null]}', '{"ll":[[1,"x"]]}', '{"ms":{"k":{"a":"x","b":null}}}'),
)
MALFORMED: Final = (
    *("[]", '[{"id":1}]', "{", '"text"', "oops", '{"id":1,"name":', '{"id":01}', '{"id":+1}', '{"id":1,}'),
    *(
        '{"name":"a\nb"}',
        '/*c*/{"id":1}',
        '{"id":1,"other":{"a":[}}',
        "5",
        "true",
        '{"id":Inf}',
        '{"id":2.0}',
    ),
    *('{"name":"\\ud800"}', '{"name":{"a": 1,  "b":["\\u00fc", true,null]}}', '{"tags":["a",1,null,[1, 2]]}'),
    *('{"id":1,"other":NaN}', '{"name":"é\\u00e9"}', '\n {"id": 1,\n"name": "x"}\n'),
)
ALL: Final = "id long, name string, tags array<string>, _corrupt_record string"
STRUCTS: Final = (
    "s struct<a:int,b:timestamp>, l array<int>, m map<string,int>, ls array<struct<a:int,b:timestamp>>,"
    " ll array<array<long>>, ms map<string,struct<a:int,b:date>>, _corrupt_record string"
)

KINDS: Final = (
    *("byte", "short", "int", "long", "float", "double", "boolean", "string", "binary", "date", "timestamp"),
    *("timestamp_ntz", "decimal(10,2)", "decimal(3,0)", "decimal(38,18)"),
)

SCHEMAS: Final = (*(f"v {kind}, _corrupt_record string" for kind in KINDS), ALL, STRUCTS)

PAYLOADS: Final = tuple(each.encode() for each in (*VALUES, *NESTED, *MALFORMED))
